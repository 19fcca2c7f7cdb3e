//! Distinguishes names of files from URLs of objects.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// Schemes of URLs of object stores.
const SCHEMES: [&str; 5] = ["s3", "gs", "az", "http", "https"];
/// Scheme of URLs of files on this machine.
const FILE_SCHEME: &str = "file://";

/// Place of a file or folder: on this machine or in an object store. Names are passed as [`Path`]s everywhere,
/// because both kinds are joined, displayed and compared in the same way. This type interprets such a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location<'a> {
    /// A path of the file system.
    Local(Cow<'a, Path>),
    /// An object, or a prefix of objects.
    Remote(RemoteName<'a>),
}

/// Parts of the URL of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteName<'a> {
    /// URL without slashes at its end.
    pub url: &'a str,
    /// Scheme: `s3`, `gs`, `az`, `http` or `https`.
    pub scheme: &'a str,
    /// Bucket, container, or host with its port.
    pub bucket: &'a str,
    /// Key within the bucket, without slashes at its start and end. Empty if the URL names the whole bucket.
    pub key: &'a str,
}

impl<'a> Location<'a> {
    /// Interprets a name. A URL with an unknown scheme is a path.
    pub fn of(name: &'a Path) -> Self {
        let remote = name.to_str().and_then(RemoteName::parse);
        remote.map_or_else(|| Self::Local(local(name)), Self::Remote)
    }

    /// Returns whether a name refers to an object store or a web server.
    pub fn is_remote(name: &Path) -> bool {
        matches!(Location::of(name), Location::Remote(_))
    }
}

impl<'a> RemoteName<'a> {
    fn parse(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        if !SCHEMES.contains(&scheme) {
            return None;
        }
        let url = url.trim_end_matches('/');
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        Some(Self { url, scheme, bucket, key: key.trim_matches('/') })
    }

    /// Returns whether the URL may hold a secret: a user's name and password, or a signature in a query.
    pub fn may_hold_secret(&self) -> bool {
        self.bucket.contains('@') || (self.is_web() && self.key.contains(['?', '#']))
    }

    /// Returns whether the URL is of a plain web server, which cannot list its files.
    pub fn is_web(&self) -> bool {
        matches!(self.scheme, "http" | "https")
    }

    /// Returns the URL without possible secrets, for messages.
    pub fn public_url(&self) -> String {
        let host = self.bucket.rsplit('@').next().unwrap_or_default();
        let key = if self.is_web() { self.key.split(['?', '#']).next().unwrap_or_default() } else { self.key };
        format!("{}://{host}/{key}", self.scheme).trim_end_matches('/').to_owned()
    }
}

/// Returns the path that a `file://` URL names. Any other name is a path already and is returned unchanged.
fn local(name: &Path) -> Cow<'_, Path> {
    let path = name.to_str().and_then(|text| text.strip_prefix(FILE_SCHEME)).filter(|path| path.starts_with('/'));
    path.map_or(Cow::Borrowed(name), |path| Cow::Owned(PathBuf::from(decoded(path))))
}

/// Decodes percent escapes such as `%20`. Returns the text unchanged if the result is not UTF-8.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|digits| first == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let byte = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_objects_are_split_and_other_names_are_paths() {
        let Location::Remote(name) = Location::of(Path::new("s3://bucket/a/b.parquet/")) else { panic!() };
        assert_eq!((name.url, name.scheme), ("s3://bucket/a/b.parquet", "s3"));
        assert_eq!((name.bucket, name.key), ("bucket", "a/b.parquet"));
        let Location::Remote(name) = Location::of(Path::new("gs://bucket")) else { panic!() };
        assert_eq!((name.bucket, name.key), ("bucket", ""));
        for name in ["a/b", "/a", "ftp://x/y", "s3:/bucket/a", "file://relative"] {
            assert_eq!(Location::of(Path::new(name)), Location::Local(Path::new(name).into()), "{name}");
        }
        let file = Location::of(Path::new("file:///a/b%20c%zz"));
        assert_eq!(file, Location::Local(Path::new("/a/b c%zz").into()));
    }

    #[test]
    fn secrets_in_urls_are_noticed_and_not_repeated() {
        for (url, public) in [
            ("s3://key:secret@bucket/a?.parquet", "s3://bucket/a?.parquet"),
            ("https://host/a.npy?X-Amz-Signature=secret", "https://host/a.npy"),
            ("https://user:secret@host:8080/a.npy", "https://host:8080/a.npy"),
        ] {
            let Location::Remote(name) = Location::of(Path::new(url)) else { panic!("{url}") };
            assert!(name.may_hold_secret());
            assert_eq!(name.public_url(), public);
        }
        let Location::Remote(glob) = Location::of(Path::new("s3://bucket/a?.parquet")) else { panic!() };
        assert!(!glob.may_hold_secret());
    }
}
