//! Strategies of walks: the default, and variants to compare it with.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// Largest number of queries in flight per thread. Enough to hide the latency of a read, and few enough that their
/// visited vertices and distance tables stay in the processor's cache.
const WALKS: usize = 16;
/// Number of pages that a lone query requests at once, including the one that it needs.
const AHEAD: usize = 8;
/// Fraction of the vertices of a page, nearest first, whose neighbors are examined even if the list has nearer vertices
/// (Starling's sigma, appendix K).
const EXPANDED: f64 = 0.3;
/// Largest value of each number.
const MOST: usize = 256;

/// Where walks start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// At the nearest vertices of the navigation graph (Starling, section 4.2), and at the entry of the graph.
    Navigation,
    /// At the entry of the graph, which is in its middle.
    Vertex,
}

/// How walks proceed. The hits depend on `expanded`, `entry` and `beam` only, the cost on all fields.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WalkStrategy {
    /// Fraction of the vertices of a page, nearest first, whose neighbors are always examined, 0 to 1.
    pub expanded: f64,
    /// Where walks start.
    pub entry: Entry,
    /// Pages that are requested and waited for together, as in DiskANN's beam; 1 reads a page at a time.
    pub beam: usize,
    /// Queries in flight per thread.
    pub walks: usize,
    /// Pages that a query requests at once if few queries are in flight, including the one that it needs.
    pub ahead: usize,
    /// Runs queries together that start near each other (NDSearch's dynamic allocating, section VI-B).
    pub near_together: bool,
    /// Shares pages between queries. If `false`, each query reads every page that it needs, and nothing in advance.
    pub shares: bool,
}

impl Default for WalkStrategy {
    fn default() -> Self {
        let (entry, beam) = (Entry::Navigation, 1);
        Self { expanded: EXPANDED, entry, beam, walks: WALKS, ahead: AHEAD, near_together: true, shares: true }
    }
}

impl WalkStrategy {
    /// Returns whether walks find the same hits as with `other`.
    pub(crate) fn finds_the_same(&self, other: &Self) -> bool {
        (self.expanded, self.entry, self.beam) == (other.expanded, other.entry, other.beam)
    }
}

impl fmt::Display for WalkStrategy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { expanded, entry, beam, walks, ahead, near_together, shares } = self;
        let entry = if *entry == Entry::Navigation { "navigation" } else { "vertex" };
        let order = if *near_together { "near" } else { "asked" };
        let pages = if *shares { "shared" } else { "own" };
        write!(
            out,
            "expanded={expanded},entry={entry},beam={beam},walks={walks},ahead={ahead},order={order},pages={pages}"
        )
    }
}

impl FromStr for WalkStrategy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut strategy = Self::default();
        let mut named = Vec::new();
        for part in text.split(',') {
            let unknown = || {
                let known = Self::default();
                Error::option(format!(
                    "there is no strategy {part} of walks; the default is {known}, entry may be vertex, order asked, pages own"
                ))
            };
            let (key, value) = part.split_once('=').ok_or_else(unknown)?;
            if named.contains(&key) {
                return Err(Error::option(format!("the strategy names {key}= twice; leave one out")));
            }
            named.push(key);
            let number = || {
                let number = value.parse().ok().filter(|number| (1..=MOST).contains(number));
                number.ok_or_else(|| Error::option(format!("the strategy {part} needs a number from 1 to {MOST}")))
            };
            match (key, value) {
                ("expanded", share) => {
                    let share = share.parse().ok().filter(|share| (0.0..=1.0).contains(share));
                    let refused = || Error::option(format!("the strategy {part} needs a share from 0 to 1"));
                    strategy.expanded = share.ok_or_else(refused)?;
                }
                ("entry", "navigation") => strategy.entry = Entry::Navigation,
                ("entry", "vertex") => strategy.entry = Entry::Vertex,
                ("beam", _) => strategy.beam = number()?,
                ("walks", _) => strategy.walks = number()?,
                ("ahead", _) => strategy.ahead = number()?,
                ("order", "near") => strategy.near_together = true,
                ("order", "asked") => strategy.near_together = false,
                ("pages", "shared") => strategy.shares = true,
                ("pages", "own") => strategy.shares = false,
                _ => return Err(unknown()),
            }
        }
        Ok(strategy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strategy_is_read_as_it_is_written() {
        let text = "expanded=0.5,entry=vertex,beam=4,walks=2,ahead=1,order=asked,pages=own";
        let strategy: WalkStrategy = text.parse().unwrap();
        assert_eq!(strategy.to_string(), text);
        assert!(!strategy.finds_the_same(&WalkStrategy::default()));
        let alone = "walks=1,ahead=1,order=asked,pages=own".parse::<WalkStrategy>().unwrap();
        assert!(alone.finds_the_same(&WalkStrategy::default()));
        assert_eq!(WalkStrategy::default().to_string().parse::<WalkStrategy>().unwrap(), WalkStrategy::default());
    }

    #[test]
    fn what_is_no_strategy_is_refused_by_name() {
        let wrong = [
            "beam",
            "beam=0",
            "beam=257",
            "expanded=1.5",
            "expanded=NaN",
            "entry=x",
            "order=",
            "pages=1",
            "rule=union",
        ];
        for wrong in wrong {
            let refused = wrong.parse::<WalkStrategy>().unwrap_err().to_string();
            assert!(refused.contains(wrong), "{wrong}: {refused}");
        }
        let twice = "beam=1,beam=2".parse::<WalkStrategy>().unwrap_err().to_string();
        assert!(twice.contains("names beam= twice"), "{twice}");
        assert!("".parse::<WalkStrategy>().is_err());
    }
}
