//! Interfaces through which the index on disk uses unmerged rows: it finds hits among them during a search, and reads
//! them during a merge.

use super::view::{TemporaryView, ViewRows};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::with_coordinates;
use crate::execute::Hit;
use crate::index::{Newcomers, UnmergedRows};
use crate::load::Members;
use crate::query::{IdRoom, QueryTarget, QueryVectors};
use crate::source::{AttributeTables, Ids};

impl UnmergedRows for TemporaryView {
    fn rows(&self) -> u64 {
        self.live
    }

    fn finding_bytes(&self, context: &Context) -> u64 {
        self.searching_bytes(context)
    }

    fn find(
        &self,
        context: &Context,
        QueryVectors { vectors, stored }: QueryVectors<'_>,
        target: QueryTarget,
        first_row: u64,
    ) -> Result<Option<Vec<Vec<Hit>>>> {
        with_coordinates!(self.space, T => {
            let queries = Members::<T>::new(context.kernel, self.space.of_queries(vectors), stored);
            self.find_members(context, &queries, target, first_row)
        })
    }

    fn append_id(&self, number: u32, ids: &mut Ids, room: &mut IdRoom<'_>) -> bool {
        let block = self.block_of(number);
        let fits = room.take_id(block.ids.bytes_of((number - block.first) as usize));
        if fits {
            ids.push_from(&block.ids, (number - block.first) as usize);
        }
        fits
    }
}

impl Newcomers for ViewRows<'_> {
    fn rows(&self) -> u32 {
        self.numbers.len() as u32
    }

    fn vector(&self, number: u32) -> &[u8] {
        self.view.row(self.numbers[number as usize]).0
    }

    fn id_bytes(&self) -> u64 {
        self.view.id_bytes().unwrap_or(0)
    }

    fn push_id(&self, number: u32, ids: &mut Ids) {
        let number = self.numbers[number as usize];
        let block = self.view.block_of(number);
        ids.push_from(&block.ids, (number - block.first) as usize);
    }

    fn attributes(&self, context: &Context) -> Result<AttributeTables<'_>> {
        Ok(match self.attributes {
            [] => Box::new(std::iter::empty()),
            attributes => Box::new(self.view.tables(context, attributes)),
        })
    }
}
