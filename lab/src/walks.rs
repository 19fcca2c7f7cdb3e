//! Strategies of walks over a graph index, to compare the default one with, and searches that use them.
//!
//! `search INDEX QUERIES HITS [NAME=VALUE...]` searches an index, and writes the hits to the file HITS. Names:
//! - `strategy`: settings of the walks, separated by commas, such as
//!   `entry=vertex,beam=4,walks=1,ahead=1,expanded=0.5`; `order=asked` and `pages=own` each disable one idea
//! - `k` (default 10) and `list`; `memory`; `threads`; `stats`: JSON file for the statistics

use std::path::Path;

use adjoin::{
    Context, Error, HitWriter, Index, QueryTarget, Result, SearchEffort, SearchOptions, SourceOptions, Target,
    lab::{Entry, WalkStrategy, index, query::QuerySources, source},
};

/// Maximum of each number.
const MOST: usize = 256;

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let [folder, queries, hits, named @ ..] = arguments else {
        return Err(Error::option("give INDEX QUERIES HITS [NAME=VALUE]..."));
    };
    let text = |name: &str| named.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str| {
        let parse = |text: &str| text.parse().map_err(|_| Error::option(format!("{name}={text} is no number")));
        text(name).map(parse).transpose()
    };
    let context = Context::default().with_resources(text("memory"), number("threads")?)?;
    let index = Index::open(&context, Path::new(folder))?.walking_by(parse(text("strategy").unwrap_or_default())?);
    let queries = source::open(&context, std::slice::from_ref(queries), &SourceOptions::default())?;
    let effort = number("list")?.map_or_else(SearchEffort::default, SearchEffort::List);
    let options = SearchOptions::new(QueryTarget::Nearest(number("k")?.unwrap_or(10) as u64), effort, 1);
    let target = Target::File { path: hits.into(), force: true };
    let sink = HitWriter::new(&context, &target, index::hit_schema(index.facts(), &*queries));
    let statistics = index::search(&context, &index, QuerySources::new(&*queries), &options, Box::new(sink))?;
    let text = text("stats").map(|path| (path, serde_json::to_string_pretty(&statistics)));
    text.map_or(Ok(()), |(path, text)| {
        let text = text.expect("statistics are numbers and text");
        std::fs::write(path, text).map_err(|error| Error::device(format!("{path}: {error}")))
    })
}

/// Parses a strategy.
pub(crate) fn parse(text: &str) -> Result<WalkStrategy> {
    let mut strategy = WalkStrategy::default();
    let mut named = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let unknown = || {
            Error::option(format!(
                "there is no strategy {part} of walks; give expanded, beam, walks, ahead, entry=vertex, order=asked, pages=own"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_differs_from_the_default() {
        let usual = WalkStrategy::default();
        assert_eq!(parse("").unwrap(), usual);
        let all = parse("expanded=0.5,entry=vertex,beam=4,walks=2,ahead=1,order=asked,pages=own").unwrap();
        let entry = Entry::Vertex;
        let expected =
            WalkStrategy { expanded: 0.5, entry, beam: 4, walks: 2, ahead: 1, near_together: false, shares: false };
        assert_eq!(all, expected);
        assert_eq!(parse("entry=navigation,order=near,pages=shared").unwrap(), usual);
    }

    #[test]
    fn invalid_walk_strategies_are_named() {
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
            let refused = parse(wrong).unwrap_err().to_string();
            assert!(refused.contains(wrong), "{wrong}: {refused}");
        }
        let twice = parse("beam=1,beam=2").unwrap_err().to_string();
        assert!(twice.contains("names beam= twice"), "{twice}");
    }
}
