//! Device parameters. Each figure has a name, a value with its unit, and a source.
//!
//! A configuration is TOML. It has a `name`, and figures in sections. `like` names a preset, which supplies all
//! figures that the file does not set:
//!
//! ```toml
//! name = "slower-pages"
//! like = "ndsearch"
//! [timing]
//! read = { value = 106, unit = "us", source = "FEMU, TLC, upper page" }
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;

use toml::{Table, Value};

use crate::error::FlashError;

/// Name, unit, minimum and maximum of a figure.
struct Known(&'static str, &'static str, f64, f64);

/// Maximum of counts that have no tighter bound.
const MANY: f64 = 1e9;

/// All figures. A count must be a whole number.
#[rustfmt::skip]
const KNOWN: &[Known] = &[
    Known("geometry.channels", "count", 1.0, 4_096.0),
    Known("geometry.chips_per_channel", "count", 1.0, 4_096.0),
    Known("geometry.luns_per_chip", "count", 1.0, 256.0),
    Known("geometry.planes_per_lun", "count", 1.0, 64.0),
    Known("geometry.blocks_per_plane", "count", 1.0, 65_535.0),
    Known("geometry.pages_per_block", "count", 1.0, 65_536.0),
    Known("geometry.page", "B", 512.0, 1_048_576.0),
    Known("timing.read", "us", 0.001, 1e6),
    Known("timing.command", "ns", 0.0, 1e9),
    Known("timing.channel", "MB/s", 0.1, 1e6),
    Known("timing.data_first", "count", 0.0, 1.0),
    Known("controller.cores", "count", 1.0, 1_024.0),
    Known("controller.request", "us", 0.0, 1e6),
    Known("controller.gather", "ns", 0.0, 1e9),
    Known("controller.dram", "MB/s", 1.0, 1e7),
    Known("controller.sector", "B", 512.0, 1_048_576.0),
    Known("link.host", "MB/s", 0.1, 1e7),
    Known("link.fpga", "MB/s", 0.1, 1e7),
    Known("link.latency", "us", 0.0, 1e6),
    Known("ecc.hard", "us", 0.0, 1e6),
    Known("ecc.soft", "us", 0.0, 1e6),
    Known("ecc.hard_fails", "share", 0.0, 1.0),
    Known("ecc.spread", "factor", 0.0, 10.0),
    Known("search.clock", "MHz", 1.0, 1e5),
    Known("search.lanes", "count", 1.0, 4_096.0),
    Known("search.query_queue", "B", 1.0, MANY),
    Known("search.result", "B", 1.0, 4_096.0),
    Known("search.address", "B", 1.0, 4_096.0),
    Known("search.speculated", "count", 0.0, 65_536.0),
    Known("sorter.clock", "MHz", 1.0, 1e5),
    Known("sorter.comparators", "count", 1.0, 1e6),
    Known("cpu.threads", "count", 1.0, 65_536.0),
    Known("cpu.element", "ns", 0.0, 1e6),
    Known("cpu.miss", "ns", 0.0, 1e6),
    Known("cpu.dram", "MB/s", 1.0, 1e8),
    Known("gpu.lanes", "count", 1.0, 1e6),
    Known("gpu.clock", "MHz", 1.0, 1e5),
    Known("gpu.dram", "MB/s", 1.0, 1e8),
    Known("gpu.launch", "us", 0.0, 1e6),
    Known("shards.count", "count", 1.0, 1e6),
    Known("shards.scale", "factor", 1e-6, 1e9),
    Known("shards.reload", "count", 0.0, 1.0),
    Known("power.logic", "W", 0.0, 1e5),
    Known("power.sorter", "W", 0.0, 1e5),
    Known("power.disk", "W", 0.0, 1e5),
    Known("power.cpu", "W", 0.0, 1e5),
    Known("power.gpu", "W", 0.0, 1e5),
    Known("power.read", "mA", 0.0, 1e5),
    Known("power.supply", "V", 0.0, 1e3),
    Known("power.bus", "nJ/B", 0.0, 1e3),
    Known("area.logic", "mm2", 0.0, 1e6),
    Known("area.density", "Gb/mm2", 0.001, 1e6),
];

/// The presets: names and contents.
const PRESETS: &[(&str, &str)] = &[
    ("ndsearch", include_str!("presets/ndsearch.toml")),
    ("mqsim", include_str!("presets/mqsim.toml")),
    ("femu-tlc", include_str!("presets/femu-tlc.toml")),
    ("z-nand", include_str!("presets/z-nand.toml")),
    ("virtual-disk", include_str!("presets/virtual-disk.toml")),
];

/// Value of a parameter of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Value, in the unit of the figure.
    pub value: f64,
    /// Where the value is from.
    pub source: String,
}

/// All figures of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    name: String,
    figures: BTreeMap<&'static str, Figure>,
}

impl Config {
    /// Returns the names of all presets.
    pub fn presets() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }

    /// Returns the preset with this name.
    ///
    /// # Errors
    /// If there is no such preset.
    pub fn preset(name: &str) -> Result<Self, FlashError> {
        let text = PRESETS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
        let text = text.ok_or_else(|| FlashError::Preset {
            name: name.to_owned(),
            known: Self::presets().collect::<Vec<_>>().join(", "),
        })?;
        Self::parse(text)
    }

    /// Parses a configuration.
    ///
    /// # Errors
    /// If it is not TOML, or if a figure is unknown, missing or out of range, has the wrong unit, or has no source.
    pub fn parse(text: &str) -> Result<Self, FlashError> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
            FlashError::Syntax { line, why: error.message().to_owned() }
        })?;
        // The preset is read first, even if `like` is not the first line, so that the figures of the text override
        // it.
        let mut config = match table.get("like") {
            Some(Value::String(name)) => Self::preset(name)?,
            Some(_) => return Err(FlashError::figure("like", "is not a text; give the name of a preset")),
            None => Self { name: String::new(), figures: BTreeMap::new() },
        };
        for (section, value) in &table {
            match (section.as_str(), value) {
                ("like", _) => {}
                ("name", Value::String(name)) => config.name.clone_from(name),
                ("name", _) => return Err(FlashError::figure("name", "is not a text; write it between quotes")),
                (_, Value::Table(figures)) => config.take_section(section, figures)?,
                _ => return Err(FlashError::figure(section, "is not a section; write figures below [section]")),
            }
        }
        // Checked at the end, since each figure may be in the preset or in the text.
        match KNOWN.iter().find(|known| !config.figures.contains_key(known.0)) {
            Some(Known(missing, unit, ..)) => Err(FlashError::figure(
                missing,
                &format!("is missing; give it in {unit}, or a preset that the rest is like = \"...\""),
            )),
            None => Ok(config),
        }
    }

    fn take_section(&mut self, section: &str, figures: &Table) -> Result<(), FlashError> {
        for (key, figure) in figures {
            let name = format!("{section}.{key}");
            let field = |field: &str| figure.get(field);
            let known = known(&name)?;
            let unit = field("unit").and_then(Value::as_str);
            if unit != Some(known.1) {
                let given = unit.map_or("has no unit".to_owned(), |unit| format!("is in {unit:?}"));
                return Err(FlashError::figure(&name, &format!("{given}; give it as unit = {:?}", known.1)));
            }
            let source = field("source").and_then(Value::as_str).filter(|source| !source.is_empty());
            let source = source.ok_or_else(|| FlashError::figure(&name, "has no source; name its source"))?;
            let value = field("value").and_then(|value| value.as_float().or(value.as_integer().map(|n| n as f64)));
            let value = value.ok_or_else(|| FlashError::figure(&name, "has no value; give a number"))?;
            // Without this check, a misspelled field would be ignored silently.
            let odd = figure.as_table().and_then(|table| {
                table.keys().find(|key| !["value", "unit", "source"].contains(&key.as_str())).cloned()
            });
            if let Some(odd) = odd {
                return Err(FlashError::figure(&name, &format!("has {odd:?}; a figure has value, unit and source")));
            }
            self.set(&name, value, source)?;
        }
        Ok(())
    }

    /// Sets a figure to a value in the unit of the figure.
    pub fn set(&mut self, name: &str, value: f64, source: &str) -> Result<(), FlashError> {
        let &Known(name, unit, least, most) = known(name)?;
        let whole = unit == "count" || unit == "B";
        if !(least..=most).contains(&value) || (whole && value.fract() != 0.0) {
            let kind = if whole { "a whole number" } else { "a number" };
            let range = format!("is {value} {unit}; give {kind} from {least} to {most}");
            return Err(FlashError::figure(name, &range));
        }
        self.figures.insert(name, Figure { value, source: source.to_owned() });
        Ok(())
    }

    /// Returns the name of the configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Changes the name of the configuration.
    pub fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.name);
    }

    /// Returns all figures with their units, ordered by name.
    pub fn figures(&self) -> impl Iterator<Item = (&'static str, &'static str, &Figure)> {
        let unit = |name: &str| KNOWN.iter().find(|known| known.0 == name).map_or("", |known| known.1);
        self.figures.iter().map(move |(name, figure)| (*name, unit(name), figure))
    }

    /// Returns the value of a figure, in the unit of the figure.
    pub(crate) fn value(&self, name: &str) -> f64 {
        self.figures[name].value
    }

    /// Returns the value of a figure that is a count or a number of bytes.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.value(name) as u64
    }

    /// Returns the configuration as TOML that [`Config::parse`] accepts.
    pub fn to_toml(&self) -> String {
        let mut text = format!("name = {}\n", Value::String(self.name.clone()));
        let mut last = "";
        for (name, unit, Figure { value, source }) in self.figures() {
            let (section, key) = name.split_once('.').expect("a figure has a section");
            // Figures are ordered by name, so all figures of a section are adjacent.
            if section != last {
                let _ = write!(text, "\n[{section}]\n");
                last = section;
            }
            let source = Value::String(source.clone());
            let _ = writeln!(text, "{key} = {{ value = {value}, unit = \"{unit}\", source = {source} }}");
        }
        text
    }
}

fn known(name: &str) -> Result<&'static Known, FlashError> {
    KNOWN.iter().find(|known| known.0 == name).ok_or_else(|| {
        let section = name.split('.').next().unwrap_or_default();
        // Most mistakes are in the key, so the message lists the figures of the same section.
        let near: Vec<&str> = KNOWN.iter().map(|known| known.0).filter(|known| known.starts_with(section)).collect();
        let choice = if near.is_empty() { KNOWN.iter().map(|known| known.0).collect() } else { near };
        FlashError::figure(name, &format!("is not a figure of a device; the figures are {}", choice.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(text: &str) -> String {
        Config::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn every_preset_is_complete_and_round_trips() {
        for name in Config::presets() {
            let preset = Config::preset(name).unwrap();
            assert_eq!(preset.name(), name);
            assert_eq!(Config::parse(&preset.to_toml()).unwrap(), preset);
            assert_eq!(preset.figures().count(), KNOWN.len());
        }
    }

    #[test]
    fn a_configuration_overrides_the_preset_it_extends() {
        let text =
            "like = \"ndsearch\"\nname = \"x\"\n[timing]\nread = { value = 5, unit = \"us\", source = \"mine\" }\n";
        let config = Config::parse(text).unwrap();
        assert_eq!((config.name(), config.value("timing.read")), ("x", 5.0));
        assert_eq!(config.count("geometry.channels"), 32);
    }

    #[test]
    fn invalid_figures_are_reported_with_a_remedy() {
        let figure = |section: &str, line: &str| refused(&format!("like = \"ndsearch\"\n[{section}]\n{line}\n"));
        let planes = figure("geometry", "planes_per_lun = { value = 0, unit = \"count\", source = \"s\" }");
        assert_eq!(planes, "geometry.planes_per_lun is 0 count; give a whole number from 1 to 64");
        let unit = figure("timing", "read = { value = 5, unit = \"ns\", source = \"s\" }");
        assert_eq!(unit, "timing.read is in \"ns\"; give it as unit = \"us\"");
        let source = figure("timing", "read = { value = 5, unit = \"us\" }");
        assert_eq!(source, "timing.read has no source; name its source");
        let unknown = figure("timing", "reed = { value = 5, unit = \"us\", source = \"s\" }");
        assert_eq!(
            unknown,
            "timing.reed is not a figure of a device; the figures are timing.read, timing.command, timing.channel, \
             timing.data_first"
        );
        let nan = figure("timing", "read = { value = nan, unit = \"us\", source = \"s\" }");
        assert!(nan.starts_with("timing.read is NaN us; give a number from"), "{nan}");
        let part = figure("geometry", "channels = { value = 1.5, unit = \"count\", source = \"s\" }");
        assert!(part.contains("is 1.5 count; give a whole number"), "{part}");
        let odd = figure("timing", "read = { value = 5, unit = \"us\", source = \"s\", note = 1 }");
        assert_eq!(odd, "timing.read has \"note\"; a figure has value, unit and source");
        assert!(refused("name = \"x\"").starts_with("geometry.channels is missing; give it in count"));
        assert!(refused("like = \"nothing\"").contains("the devices are ndsearch, mqsim"));
        assert!(refused("a = [").starts_with("line 1 of the configuration"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(name|like|\\[timing\\]|read)[ =\"a-z0-9\\n{}.,\\[\\]]{0,60}") {
            let _ = Config::parse(&text);
        }
    }
}
