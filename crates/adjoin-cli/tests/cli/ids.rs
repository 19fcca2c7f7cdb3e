//! The choice of the column with the ids, and the error if no column or an unsuitable one is chosen.

use std::sync::Arc;

use arrow_array::types::{Float32Type, Int8Type};
use arrow_array::{ArrayRef, DictionaryArray, FixedSizeListArray, Float64Array, TimestampMicrosecondArray};

use crate::inputs::write_columns;
use crate::place::Place;

/// Writes three rows with the ids in the column `name`. The first two rows are near each other.
fn with_ids(place: &Place, name: &str, ids: ArrayRef) {
    let vectors = [[0.0, 0.0], [0.5, 0.0], [9.0, 9.0]].map(|vector| Some(vector.map(Some)));
    let vectors = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vectors, 2);
    write_columns(&place.path("set.parquet"), &[("embedding", Arc::new(vectors)), (name, ids)]);
}

#[test]
fn dictionary_columns_of_texts_are_valid_ids() {
    let place = Place::new();
    let texts = || Arc::new(["cat", "dog", "cow"].into_iter().collect::<DictionaryArray<Int8Type>>());
    with_ids(&place, "id", texts());
    let by_id = "left_id,right_id,distance\ncat,dog,0.5\n";
    assert_eq!(place.done("join set.parquet --eps 1 -o -").out, by_id);
    assert_eq!(place.done("groundtruth set.parquet --eps 1 -o -").out, by_id);
    with_ids(&place, "key", texts());
    assert_eq!(place.done("join set.parquet --id-column key --eps 1 -o -").out, by_id);
}

#[test]
fn refuses_an_id_column_of_an_unsupported_type() {
    let place = Place::new();
    let columns: [(ArrayRef, &str); 2] = [
        (Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0])), "Float64"),
        (Arc::new(TimestampMicrosecondArray::from(vec![1, 2, 3])), "Timestamp"),
    ];
    for (ids, kind) in columns {
        with_ids(&place, "id", ids);
        let words = ["set.parquet: column id is ", kind, "--id-column with another column", "--no-ids"];
        for line in ["build set.parquet -o store", "join set.parquet --eps 1", "groundtruth set.parquet --eps 1 -o -"] {
            place.refused(line, &words);
            place.done(&format!("{line} --no-ids"));
        }
        let by_number = "left_id,right_id,distance\n0,1,0.5\n";
        assert_eq!(place.done("join set.parquet --no-ids --eps 1 -o -").out, by_number);
        assert_eq!(place.done("join store --eps 1 -o -").out, by_number);
        std::fs::remove_dir_all(place.path("store")).unwrap();
    }
}
