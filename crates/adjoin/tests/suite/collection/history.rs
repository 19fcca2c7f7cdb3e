//! Histories of concurrent operations on a collection, and a check that they are linearizable (Herlihy and Wing,
//! 1990). Every write has a number. All writes are repeated on a map in the order of their numbers. Every read must
//! equal the map at some moment between the read's begin and end, and must include all writes that were acknowledged
//! before it began.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adjoin::{Collection, Context, Durability, ErrorKind, Random, WriteReport};

use super::{Model, Step, by_distance, found, rows};

/// State that all threads share.
pub(super) struct Shared {
    pub(super) collection: Collection,
    /// Numbers of two writes: the last one that was acknowledged, and the last one that must survive a loss of power.
    acknowledged: AtomicU64,
    durable: AtomicU64,
}

/// A thread that uses a collection, and its history.
pub(super) struct User {
    shared: Arc<Shared>,
    context: Context,
    random: Random,
    history: History,
}

#[derive(Debug, Default)]
pub(super) struct History {
    writes: Vec<(Step, WriteReport)>,
    looks: Vec<Look>,
}

/// A read and its result. It must include all writes up to number `least`, and none after number `most`.
#[derive(Debug)]
struct Look {
    least: u64,
    most: u64,
    seen: Seen,
}

#[derive(Debug)]
enum Seen {
    /// All rows, by id.
    Rows(Model),
    /// All rows as hits: pairs of squared distance and id.
    Found(Vec<(f64, i64)>),
    /// A step that was refused, because at least one of the rows to insert existed.
    Refused(Step),
}

impl Shared {
    pub(super) fn new(collection: Collection) -> Arc<Self> {
        Arc::new(Self { collection, acknowledged: AtomicU64::new(0), durable: AtomicU64::new(0) })
    }
}

impl User {
    /// Creates a user with a context of its own, since a search or a merge takes all free memory of its context.
    pub(super) fn new(shared: &Arc<Shared>, context: Context, random: Random) -> Self {
        Self { shared: shared.clone(), context, random, history: History::default() }
    }

    pub(super) fn write(&mut self) {
        let mut step = Step::draw(&mut self.random, &Model::new());
        if cfg!(adjoin_shuttle) {
            // A filtered delete may wait for memory that another one holds. It waits without a lock that the model
            // checker knows.
            step.delete_below = None;
        }
        let durability = if self.random.below(2) == 0 { Durability::Group } else { Durability::Buffered };
        let Shared { collection, acknowledged, durable } = &*self.shared;
        let least = acknowledged.load(Ordering::SeqCst);
        match step.write(collection, durability) {
            Ok(written) => {
                acknowledged.fetch_max(written.sequence, Ordering::SeqCst);
                if durability == Durability::Group {
                    durable.fetch_max(written.sequence, Ordering::SeqCst);
                }
                self.history.writes.push((step, written));
            }
            Err(error) => {
                let is_there = error.kind() == ErrorKind::Input && error.to_string().contains("already exists");
                assert!(is_there, "{error}");
                self.history.looks.push(Look { least, most: collection.facts().sequence, seen: Seen::Refused(step) });
            }
        }
    }

    pub(super) fn flush(&mut self) {
        let Shared { collection, acknowledged, durable } = &*self.shared;
        let before = acknowledged.load(Ordering::SeqCst);
        let flushed = collection.flush().unwrap();
        assert!(flushed >= before, "{flushed} of {before}");
        durable.fetch_max(flushed, Ordering::SeqCst);
    }

    /// Looks up every id.
    pub(super) fn get(&mut self) {
        let Shared { collection, acknowledged, .. } = &*self.shared;
        let least = acknowledged.load(Ordering::SeqCst);
        let seen = Seen::Rows(rows(collection).unwrap());
        self.history.looks.push(Look { least, most: collection.facts().sequence, seen });
    }

    pub(super) fn search(&mut self) {
        let Shared { collection, acknowledged, .. } = &*self.shared;
        let least = acknowledged.load(Ordering::SeqCst);
        let seen = Seen::Found(found(&self.context, collection).unwrap());
        self.history.looks.push(Look { least, most: collection.facts().sequence, seen });
    }

    /// Reads like another process. The result may include a write that is in the log but not in memory yet.
    pub(super) fn open(&mut self, live: &Path) {
        let least = self.shared.acknowledged.load(Ordering::SeqCst);
        let seen = Seen::Rows(rows(&Collection::open_read_only(&self.context, live).unwrap()).unwrap());
        self.history.looks.push(Look { least, most: u64::MAX, seen });
    }

    /// Reads the state that a loss of power at this moment would leave. `found` returns a context on that state.
    #[cfg(adjoin_shuttle)]
    pub(super) fn open_durable(&mut self, found: impl FnOnce() -> Context, live: &Path) {
        let least = self.shared.durable.load(Ordering::SeqCst);
        let seen = Seen::Rows(rows(&Collection::open_read_only(&found(), live).unwrap()).unwrap());
        self.history.looks.push(Look { least, most: u64::MAX, seen });
    }

    pub(super) fn merge(&mut self) {
        self.shared.collection.merge(&self.context).unwrap();
    }

    pub(super) fn done(self) -> History {
        self.history
    }
}

impl History {
    /// Combines the histories of several threads.
    pub(super) fn of_all(all: impl IntoIterator<Item = Self>) -> Self {
        all.into_iter().fold(Self::default(), |mut history, more| {
            history.writes.extend(more.writes);
            history.looks.extend(more.looks);
            history
        })
    }

    /// Returns the content after each write, starting with the empty collection.
    pub(super) fn states(&self) -> Result<Vec<Model>, String> {
        let mut states = vec![Model::new()];
        let mut changes: Vec<_> =
            self.writes.iter().filter(|(_, written)| written.rows + written.deleted > 0).collect();
        changes.sort_by_key(|(_, written)| written.sequence);
        for (number, (step, written)) in (1..).zip(changes) {
            let before = &states[states.len() - 1];
            let mut after = before.clone();
            step.apply(&mut after);
            let (rows, missing) = ((step.insert.len() + step.upsert.len()) as u64, step.missing(before));
            let gone = before.len() as u64 + rows - after.len() as u64;
            let wanted = WriteReport { sequence: number, rows, deleted: gone, missing };
            if *written != wanted || step.meets(before) {
                return Err(format!("{written:?} of {step:?}, which is {wanted:?} after {before:?}"));
            }
            states.push(after);
        }
        Ok(states)
    }

    /// Checks that the history is linearizable.
    pub(super) fn check(&self) -> Result<(), String> {
        let states = self.states()?;
        for (step, written) in self.writes.iter().filter(|(_, written)| written.rows + written.deleted == 0) {
            let there = states.get(written.sequence as usize).ok_or_else(|| format!("{written:?}: no such write"))?;
            let missing = step.delete.len() as u64;
            if step.missing(there) != missing || written.missing != missing {
                return Err(format!("{written:?} of {step:?} changed nothing, where {there:?} were"));
            }
        }
        let last = states.len() as u64 - 1;
        for Look { least, most, seen } in &self.looks {
            let between = *least..=(*most).min(last);
            if !between.clone().any(|number| seen.is_of(&states[number as usize])) {
                let at = states.iter().position(|state| seen.is_of(state));
                return Err(format!("{seen:?} is of write {at:?}, which is not in {between:?}"));
            }
        }
        Ok(())
    }
}

impl Seen {
    fn is_of(&self, state: &Model) -> bool {
        match self {
            Self::Rows(rows) => rows == state,
            Self::Found(found) => *found == by_distance(state),
            Self::Refused(step) => step.meets(state),
        }
    }
}

impl Step {
    /// Returns how many of the ids to delete do not exist.
    fn missing(&self, there: &Model) -> u64 {
        self.delete.iter().filter(|id| !there.contains_key(id)).count() as u64
    }

    /// Returns whether one of the rows to insert exists already.
    fn meets(&self, there: &Model) -> bool {
        self.insert.keys().any(|id| there.contains_key(id))
    }
}

/// Checks that impossible histories are rejected and possible ones are accepted.
#[test]
fn canary_impossible_histories_are_detected() {
    let of = |id: i64| Model::from([(id, [id as u8; 3])]);
    let put = |id, sequence| {
        let step = Step { upsert: of(id), ..Step::default() };
        (step, WriteReport { sequence, rows: 1, deleted: 0, missing: 0 })
    };
    let said = |writes: &[(Step, WriteReport)], least, most, seen| {
        History { writes: writes.to_vec(), looks: vec![Look { least, most, seen }] }.check().err()
    };
    let both = Model::from([(1, [1; 3]), (2, [2; 3])]);
    let writes = [put(2, 2), put(1, 1)];
    assert_eq!(said(&writes, 2, 2, Seen::Rows(both.clone())), None);
    assert_eq!(said(&writes, 0, 1, Seen::Found(by_distance(&of(1)))), None);
    // An acknowledged row is missing, a row is from a later write, a hit occurs twice, a number of a write is
    // skipped, or it is repeated.
    assert!(said(&writes, 2, 2, Seen::Rows(of(1))).is_some());
    assert!(said(&writes, 0, 1, Seen::Rows(both)).is_some());
    assert!(said(&writes, 0, 2, Seen::Rows(of(2))).is_some());
    assert!(said(&writes, 0, 2, Seen::Found([by_distance(&of(1)), by_distance(&of(1))].concat())).is_some());
    assert!(said(&[put(1, 1), put(2, 3)], 0, 0, Seen::Rows(Model::new())).is_some());
    assert!(said(&[put(1, 1), put(2, 1)], 0, 0, Seen::Rows(Model::new())).is_some());
    // A step is refused without a reason, or a delete misses an existing row.
    let insert = |id| Seen::Refused(Step { insert: of(id), ..Step::default() });
    assert_eq!(said(&writes, 1, 1, insert(1)), None);
    assert!(said(&writes, 1, 1, insert(2)).is_some());
    let delete = Step { delete: vec![1], ..Step::default() };
    let nothing = WriteReport { sequence: 1, rows: 0, deleted: 0, missing: 1 };
    assert!(said(&[put(1, 1), (delete, nothing)], 0, 0, Seen::Rows(Model::new())).is_some());
}
