//! Pages that searches of an open index keep for later searches.

use adjoin::{Context, Element, ErrorKind, Index, IndexOptions, lab::context::RUNTIME_BYTES};

use super::{Found, Indexed, options, search_open};
use crate::harness::{Set, Setup, error_of};
use crate::search::{assert_same, values};

const DIMENSIONS: usize = 16;
const K: u64 = 5;
const LIST: usize = 30;

fn indexed() -> (Set, Indexed) {
    let set = Set::of(Element::U8, DIMENSIONS, &values(20_000, DIMENSIONS, 5));
    let queries = Set::of(Element::U8, DIMENSIONS, &values(200, DIMENSIONS, 6));
    let indexed = Indexed::build(&Setup::default(), &set, &IndexOptions { code_bytes: Some(8), ..options() });
    (queries, indexed)
}

fn search(context: &Context, index: &Index, queries: &Set) -> Found {
    search_open(context, index, queries, K, LIST).unwrap()
}

fn reads(found: &Found) -> u64 {
    found.statistics.common.io.reads.unwrap()
}

#[test]
fn later_searches_find_the_same_hits_with_fewer_reads() {
    let (queries, indexed) = indexed();
    let context = Setup::default().context().keeping_caches();
    let before = context.budget().free();
    let index = Index::open(&context, &indexed.path()).unwrap();
    let free = context.budget().free();
    let wanted = indexed.search(&Setup::default(), &queries, K, LIST);
    let first = search(&context, &index, &queries);
    assert!(context.budget().free() < free, "pages are kept");
    let again = search(&context, &index, &queries);
    for found in [&first, &again] {
        assert_same(&found.hits, &wanted.hits, "with kept pages");
        let per_query = |found: &Found| found.statistics.search.reads_per_query;
        assert_eq!(per_query(found), per_query(&wanted), "pages that the queries need");
    }
    // Not 0: which pages are prefetched without need depends on which reads end first.
    assert!(reads(&again) < reads(&first) / 4, "{} {}", reads(&first), reads(&again));

    // Other work takes the memory of the pages, so the next search reads them again.
    let all = context.reserve(free, "all of the memory").unwrap();
    let refused = error_of(search_open(&context, &index, &queries, K, LIST).map(drop));
    assert_eq!(refused.kind(), ErrorKind::Budget, "{refused}");
    drop(all);
    let cold = reads(&search(&context, &index, &queries));
    assert!(cold > reads(&first) / 2, "{cold} {}", reads(&first));

    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_same(&search(&context, &index, &queries).hits, &wanted.hits, "next to others"));
        }
    });
    drop(index);
    assert_eq!(context.budget().free(), before, "all memory is free again");
}

#[test]
fn a_context_of_one_run_keeps_no_pages() {
    let (queries, indexed) = indexed();
    let context = Setup::default().context();
    let index = Index::open(&context, &indexed.path()).unwrap();
    let free = context.budget().free();
    let [first, again] = [(); 2].map(|()| reads(&search(&context, &index, &queries)));
    assert_eq!(context.budget().free(), free);
    assert!(again > first / 2, "{again} {first}");
    // Neither does a part of a context that keeps pages.
    let keeping = context.keeping_caches();
    search(&keeping.for_run(free, "a part").unwrap(), &index, &queries);
    assert_eq!(keeping.budget().free(), free);
}

/// Searches with budgets from less than any page to all pages.
#[test]
fn hits_do_not_depend_on_the_memory_for_kept_pages() {
    let (queries, indexed) = indexed();
    let wanted = indexed.search(&Setup::default(), &queries, K, LIST);
    let mut reads_of_later = Vec::new();
    for spare in [0, 1 << 20, 6 << 20, 12 << 20, 64 << 20] {
        let context = Context::default().with_memory(RUNTIME_BYTES + (8 << 20) + spare).keeping_caches();
        let index = Index::open(&context, &indexed.path()).unwrap();
        let [_, again] = [(); 2].map(|()| {
            let found = search(&context, &index, &queries);
            assert_same(&found.hits, &wanted.hits, &format!("{spare} bytes more"));
            reads(&found)
        });
        reads_of_later.push(again);
    }
    assert!(4 * reads_of_later[4] < reads_of_later[0], "{reads_of_later:?}");
}
