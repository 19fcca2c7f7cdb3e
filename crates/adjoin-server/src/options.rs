//! Options of a server. The options of a search request are in `request.rs`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use adjoin::{Error, Result};
pub use tracing::Level;

/// Form of the messages on standard error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines of text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Data that a server searches.
#[derive(Debug, Clone)]
pub enum ServedData {
    /// Folder of a store, an index or a collection.
    Folder(PathBuf),
    /// Other servers, each with rows of its own.
    Shards(ShardOptions),
}

/// Servers that a coordinator searches.
#[derive(Clone)]
pub struct ShardOptions {
    /// Their addresses, each as `http://HOST:PORT`.
    pub urls: Vec<String>,
    /// Key to send to them.
    pub key: Option<String>,
}

impl fmt::Debug for ShardOptions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ShardOptions").field("urls", &self.urls).finish_non_exhaustive()
    }
}

/// Options of a server: its data, the address and access control.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Folder or shards to search.
    pub data: ServedData,
    /// Address and port to listen on; port 0 takes any free port.
    pub listen: SocketAddr,
    /// Key that clients must show; `None` if clients need no key.
    pub key: Option<String>,
    /// Allows clients on other machines without a key.
    pub insecure: bool,
    /// Log level on standard error.
    pub level: Level,
    /// Form of these messages.
    pub log_format: LogFormat,
}

impl ServerOptions {
    /// Checks that other machines have no access without a key unless `insecure` is set.
    ///
    /// # Errors
    /// If other machines can reach the server without a key, or the key cannot be sent in a header.
    pub fn check(&self) -> Result<()> {
        let of_shards = match &self.data {
            ServedData::Folder(_) => None,
            ServedData::Shards(shards) => shards.key.as_ref(),
        };
        for key in self.key.iter().chain(of_shards) {
            let may_be_sent = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
            if !may_be_sent {
                return Err(Error::option("the key must be visible ASCII characters without blanks, at least one"));
            }
        }
        if self.key.is_none() && !self.insecure && !self.listen.ip().is_loopback() {
            return Err(Error::option(format!(
                "all clients that reach {} could search without a key; give --key-file, or --insecure to allow that",
                self.listen
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_for_other_hosts_needs_a_key_or_insecure() {
        let of = |listen: &str, key: Option<&str>, insecure| {
            let (listen, key) = (listen.parse().unwrap(), key.map(str::to_owned));
            let (level, log_format) = (Level::INFO, LogFormat::Text);
            let data = ServedData::Folder("set.store".into());
            ServerOptions { data, listen, key, insecure, level, log_format }.check()
        };
        for listen in ["127.0.0.1:0", "127.8.0.1:80", "[::1]:7700"] {
            of(listen, None, false).unwrap();
        }
        for listen in ["0.0.0.0:7700", "192.0.2.1:7700", "[::]:7700"] {
            assert!(of(listen, None, false).unwrap_err().to_string().contains("--key-file"), "{listen}");
            of(listen, None, true).unwrap();
            of(listen, Some("secret"), false).unwrap();
        }
        for key in ["", "two words", "ké", "line\n"] {
            assert!(of("127.0.0.1:0", Some(key), false).is_err(), "{key:?}");
        }
    }
}
