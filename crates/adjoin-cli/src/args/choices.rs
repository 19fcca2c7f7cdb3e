//! Options with a closed set of values, which the engine defines.

use adjoin::Choice;
use clap::builder::{PossibleValuesParser, TypedValueParser};

/// Returns the parser of a set of values. Help texts and completions list their names.
pub(super) fn choice<C: Choice>() -> impl TypedValueParser<Value = C> {
    one_of(C::ALL, C::name)
}

/// Returns the parser of some values, given their names.
pub(super) fn one_of<T: Copy + Send + Sync + 'static>(
    values: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let names = values.iter().map(|&value| name(value));
    PossibleValuesParser::new(names).map(move |given| {
        *values.iter().find(|&&value| name(value) == given).expect("the parser accepts these names only")
    })
}
