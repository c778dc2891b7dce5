//! Many identities in one process: whoever asks for a broker of an identity that somebody holds
//! already shares it, so that a thousand volumes of one service account cost one exchange in a
//! token's life. An identity that nobody holds any more is forgotten, its task ended.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{Broker, BrokerConfig, Owner, Tuning};
use crate::audience::Audience;
use crate::boundary::Boundary;
use crate::error::{Error, Kind};
use crate::exchange::{Exchange, Impersonate};
use crate::sts::Endpoint;
use crate::universe::Universe;

/// What makes an identity another one. Deadlines do not: the first holder's count.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Parts);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Parts {
    Workload(Box<Workload>),
    Named(String),
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Workload {
    source: String,
    audience: Audience,
    sts: Endpoint,
    scope: String,
    impersonate: Option<Impersonate>,
    boundary: Option<Boundary>,
    universe: Universe,
}

impl Key {
    /// The key of an identity that is not described by a [`BrokerConfig`]. It never equals one that
    /// is.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self(Parts::Named(name.into()))
    }

    fn of(config: &BrokerConfig) -> Self {
        Self(Parts::Workload(Box::new(Workload {
            source: config.source.key(),
            audience: config.audience.clone(),
            sts: config.sts.clone(),
            scope: config.scope.clone(),
            impersonate: config.impersonate.clone(),
            boundary: config.boundary.clone(),
            universe: config.universe.clone(),
        })))
    }
}

impl fmt::Debug for Key {
    /// Without the source, whose key may hold one of a web server's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Parts::Workload(workload) => f
                .debug_struct("Key")
                .field("audience", &workload.audience)
                .finish_non_exhaustive(),
            Parts::Named(name) => f.debug_tuple("Key").field(name).finish(),
        }
    }
}

/// The brokers of a process, one an identity. Clones share them.
///
/// ```no_run
/// # fn example() -> Result<(), gcsmount_auth::Error> {
/// use std::sync::Arc;
///
/// use gcsmount_auth::broker::Key;
/// use gcsmount_auth::{
///     BrokerConfig, CredentialFile, CredentialFileConfig, FileSource, Identities,
/// };
///
/// let identities = Identities::new(1000);
/// let projected = |path| BrokerConfig::new(Arc::new(FileSource::new(path)));
/// let one = identities.broker(&projected("/volume-1/token"))?;
/// let same = identities.broker(&projected("/volume-1/token"))?; // shares the token of the first
/// assert_eq!(identities.len(), 1);
///
/// // Another way to a token, under a name of the caller's.
/// let file = CredentialFileConfig::new("/etc/gcsmount/key.json");
/// let tuning = file.tuning();
/// let other = identities.get_or_start(Key::named("key.json"), tuning, || {
///     Ok(Arc::new(CredentialFile::new(file)))
/// })?;
/// assert_eq!(identities.len(), 2);
///
/// drop((one, same)); // the last holder of an identity ends its broker
/// assert_eq!(identities.len(), 1);
/// # drop(other);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Identities(Arc<Table>);

#[derive(Debug)]
struct Table {
    limit: usize,
    /// Held for map work only, and no broker is dropped under it: its end takes the lock itself.
    brokers: Mutex<HashMap<Key, Weak<Owner>>>,
}

/// The place of a broker in the table, given up when the broker ends.
#[derive(Debug)]
pub(super) struct Registered {
    table: Weak<Table>,
    key: Key,
}

impl Identities {
    /// Room for `limit` identities at a time.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Table {
            limit,
            brokers: Mutex::default(),
        }))
    }

    /// The broker of this identity: the one that somebody holds, or a new one.
    ///
    /// # Errors
    /// [`Kind::Config`] if all places are taken, and as [`Broker::spawn`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn broker(&self, config: &BrokerConfig) -> Result<Broker, Error> {
        self.get_or_start(Key::of(config), config.tuning(), || {
            config.clone().exchange()
        })
    }

    /// The same for any way of getting tokens. `exchange` is called if nobody holds the identity.
    ///
    /// # Errors
    /// [`Kind::Config`] if all places are taken, and what `exchange` returns.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn get_or_start(
        &self,
        key: Key,
        tuning: Tuning,
        exchange: impl FnOnce() -> Result<Arc<dyn Exchange>, Error>,
    ) -> Result<Broker, Error> {
        if let Some(broker) = self.0.held(&key)? {
            return Ok(broker);
        }
        // Outside the lock, since it may read files. Who comes second throws its own away.
        let exchange = exchange()?;
        let mut brokers = self.0.lock();
        if let Some(owner) = brokers.get(&key).and_then(Weak::upgrade) {
            return Ok(Broker(owner));
        }
        self.0.check_room(&key, &brokers)?;
        let registered = Registered {
            table: Arc::downgrade(&self.0),
            key: key.clone(),
        };
        let broker = Broker::start(exchange, tuning, Some(registered));
        brokers.insert(key, Arc::downgrade(&broker.0));
        Ok(broker)
    }

    /// How many identities are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Weak<Owner>>> {
        // A panic under the lock leaves the map whole.
        self.brokers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self, key: &Key) -> Result<Option<Broker>, Error> {
        let brokers = self.lock();
        match brokers.get(key).and_then(Weak::upgrade) {
            Some(owner) => Ok(Some(Broker(owner))),
            None => self.check_room(key, &brokers).map(|()| None),
        }
    }

    fn check_room(&self, key: &Key, brokers: &HashMap<Key, Weak<Owner>>) -> Result<(), Error> {
        match brokers.len() < self.limit || brokers.contains_key(key) {
            true => Ok(()),
            false => Err(Error::new(
                Kind::Config,
                format!("all {} places for identities are taken", self.limit),
            )),
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Some(table) = self.table.upgrade() else {
            return;
        };
        let mut brokers = table.lock();
        // Somebody may have started a new one between the end of the old one and this.
        if brokers
            .get(&self.key)
            .is_some_and(|owner| owner.strong_count() == 0)
        {
            brokers.remove(&self.key);
        }
    }
}
