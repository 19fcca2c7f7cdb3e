//! Connections to buckets.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use adjoin_device::{Creator, DeviceError, Operation, RemoteName};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use tokio::runtime::{Builder, Runtime};

use crate::refusal::refusal;

/// Number of threads that send requests. They mostly wait and copy, so two suffice for a fast network.
const THREADS: usize = 2;
/// Maximum number of threads that resolve host names.
const RESOLVING_THREADS_MAX: usize = 4;
/// Stack size of a thread. Encrypted connections need a larger stack than reads of files.
const STACK_BYTES: usize = 1 << 20;

/// Limits on the retries of a request. A request is retried after an answer such as 503, and after a connection broke
/// off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Maximum number of retries of a request.
    pub times_max: usize,
    /// Wait before the first retry. Each further wait is up to twice as long as the previous one, and at most ten
    /// seconds.
    pub first_wait: Duration,
    /// Time after which no further retry starts.
    pub total_max: Duration,
    /// Time limit for the whole answer to a request. For writes, the limit is ten times as long.
    pub answer_max: Duration,
}

/// Purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// Reading ranges.
    Reading,
    /// Writing parts. The time limit is longer: parts are longer than most ranges, and networks often send more
    /// slowly than they receive.
    Writing,
}

/// Factor of the times of [`Retries`] for writes.
const WRITES_TAKE: u32 = 10;

impl Default for Retries {
    fn default() -> Self {
        Self {
            times_max: 8,
            first_wait: Duration::from_millis(100),
            total_max: Duration::from_secs(90),
            answer_max: Duration::from_secs(30),
        }
    }
}

impl Retries {
    fn of_writes(self) -> Self {
        Self { total_max: self.total_max * WRITES_TAKE, answer_max: self.answer_max * WRITES_TAKE, ..self }
    }
}

/// Settings for connections to object stores.
#[derive(Debug, Clone, Default)]
pub struct StoreSettings {
    /// Limits on retries.
    pub retries: Retries,
    /// Names and values of variables, such as `AWS_ENDPOINT_URL`. They override environment variables.
    pub variables: Vec<(String, String)>,
}

/// The connected buckets of a process, and the threads that serve them.
pub(crate) struct Stores {
    creator: Creator,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    settings: StoreSettings,
    /// Connected stores, by scheme with bucket, and purpose.
    connected: Mutex<HashMap<(String, Purpose), Arc<dyn ObjectStore>>>,
}

impl Stores {
    /// Starts the threads.
    pub(crate) fn start(settings: StoreSettings) -> io::Result<Self> {
        // Fails only if another part of the process has chosen a provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(RESOLVING_THREADS_MAX)
            .thread_stack_size(STACK_BYTES)
            .thread_name("adjoin object")
            .enable_all()
            .build()?;
        Ok(Self { creator: Creator::this_process(), runtime: Some(runtime), settings, connected: Mutex::default() })
    }

    /// Returns the threads.
    pub(crate) fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("the threads end only when this is dropped")
    }

    /// Returns whether the threads run in this process, and not in a process from which it was forked.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.creator.is_this_process()
    }

    /// Returns the store that a URL names, with credentials from the environment. No request is sent yet.
    pub(crate) fn connect(&self, name: RemoteName<'_>, purpose: Purpose) -> Result<Arc<dyn ObjectStore>, DeviceError> {
        if name.may_hold_secret() {
            let why = "the URL holds a user name or a query, which may be secret; pass credentials in the environment";
            let why = io::Error::new(io::ErrorKind::InvalidInput, why);
            return Err(DeviceError::new(Operation::Open, Path::new(&name.public_url()), why));
        }
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        let root = format!("{}://{}", name.scheme, name.bucket);
        if let Some(store) = connected.get(&(root.clone(), purpose)) {
            return Ok(store.clone());
        }
        let store = self.build(name, &root, purpose).map_err(|error| {
            DeviceError::new(Operation::Open, Path::new(&name.public_url()), refusal(name.scheme, &error))
        })?;
        connected.insert((root, purpose), store.clone());
        Ok(store)
    }

    fn build(&self, name: RemoteName<'_>, root: &str, purpose: Purpose) -> object_store::Result<Arc<dyn ObjectStore>> {
        let StoreSettings { retries, variables } = &self.settings;
        let Retries { times_max, first_wait, total_max, answer_max } = match purpose {
            Purpose::Reading => *retries,
            Purpose::Writing => retries.of_writes(),
        };
        let backoff = BackoffConfig { init_backoff: first_wait, ..BackoffConfig::default() };
        let retry = RetryConfig { backoff, max_retries: times_max, retry_timeout: total_max };
        // The name of a setting is the name of its variable in lower case. The builder ignores unknown settings.
        let mut settings: Vec<(String, String)> =
            variables.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect();
        settings.push(("timeout".to_owned(), format!("{} ms", answer_max.as_millis())));
        Ok(match name.scheme {
            "s3" => {
                let set = |builder: AmazonS3Builder, (name, value): (String, String)| match name.parse() {
                    Ok(name) => builder.with_config(name, value),
                    Err(_) => builder,
                };
                let builder = AmazonS3Builder::from_env().with_bucket_name(name.bucket).with_retry(retry);
                // Objects are removed one by one, since not all servers support requests that remove many.
                let builder = builder.with_disable_bulk_delete(true);
                Arc::new(settings.into_iter().fold(builder, set).build()?)
            }
            "gs" => {
                let set = |builder: GoogleCloudStorageBuilder, (name, value): (String, String)| match name.parse() {
                    Ok(name) => builder.with_config(name, value),
                    Err(_) => builder,
                };
                let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(name.bucket).with_retry(retry);
                Arc::new(settings.into_iter().fold(builder, set).build()?)
            }
            "az" => {
                let set = |builder: MicrosoftAzureBuilder, (name, value): (String, String)| match name.parse() {
                    Ok(name) => builder.with_config(name, value),
                    Err(_) => builder,
                };
                let builder = MicrosoftAzureBuilder::from_env().with_container_name(name.bucket).with_retry(retry);
                Arc::new(settings.into_iter().fold(builder, set).build()?)
            }
            _ => {
                let options = ClientOptions::new().with_allow_http(name.scheme == "http").with_timeout(answer_max);
                let builder = HttpBuilder::new().with_url(root).with_retry(retry);
                Arc::new(builder.with_client_options(options).build()?)
            }
        })
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        match self.is_of_this_process() {
            // Does not wait for the threads, since this may run on one of them: the last owner may be a request.
            true => runtime.shutdown_background(),
            // In a forked child, the threads do not exist, and waiting for their end would block forever.
            false => std::mem::forget(runtime),
        }
    }
}
