//! Closed sets of option values. The command line, Python and HTTP derive their lists of names from them.

use std::fmt::Display;
use std::str::FromStr;

use crate::base::error::{Error, Result};
use crate::base::message::{Message, message};

/// A closed set of option values.
pub trait Choice: Copy + Eq + Display + FromStr<Err = Error> + Send + Sync + 'static {
    /// All values, in the order in which help texts list them.
    const ALL: &'static [Self];

    /// Returns the name that users type.
    fn name(self) -> &'static str;

    /// Returns the names of all values.
    fn names() -> Vec<&'static str> {
        Self::ALL.iter().map(|value| value.name()).collect()
    }
}

/// Returns the value with the name `name`.
///
/// # Errors
/// Fails if there is no such value. The message names the option `subject` and lists the values that it accepts.
pub(crate) fn find<C: Choice>(subject: impl Into<Message>, name: &str) -> Result<C> {
    let found = C::ALL.iter().copied().find(|value| value.name() == name);
    found.ok_or_else(|| {
        let names = C::names();
        let (last, others) = names.split_last().expect("a choice has values");
        let give = if others.is_empty() { (*last).to_owned() } else { format!("{} or {last}", others.join(", ")) };
        Error::option(message![subject.into(), format!(" is {name:?}; give {give}")])
    })
}

/// Implements [`Choice`], `Display` and `FromStr` for an enum without fields: `choices! { Argument::OnBad => OnBad {
/// Error = "error", Skip = "skip" } }`. The part before the arrow is the start of error messages.
macro_rules! choices {
    ($subject:expr => $Type:ident { $($Value:ident = $name:literal),+ $(,)? }) => {
        impl $crate::base::choice::Choice for $Type {
            const ALL: &'static [Self] = &[$(Self::$Value),+];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$Value => $name),+
                }
            }
        }

        impl std::fmt::Display for $Type {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str($crate::base::choice::Choice::name(*self))
            }
        }

        impl std::str::FromStr for $Type {
            type Err = $crate::base::error::Error;

            fn from_str(name: &str) -> $crate::base::error::Result<Self> {
                $crate::base::choice::find($subject, name)
            }
        }
    };
}
pub(crate) use choices;

#[cfg(test)]
mod tests {
    use super::Choice;
    use crate::base::message::Argument;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Size {
        Small,
        Middle,
        Large,
    }

    choices! { Argument::Page => Size { Small = "s", Middle = "m", Large = "l" } }

    #[test]
    fn values_have_the_names_that_are_parsed() {
        for &size in Size::ALL {
            assert_eq!(size.name().parse::<Size>().unwrap(), size);
        }
        let refused = "xl".parse::<Size>().unwrap_err();
        assert_eq!(refused.to_string(), "page is \"xl\"; give s, m or l");
    }
}
