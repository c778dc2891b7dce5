//! Whom the metadata server answers for, at which address.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use parking_lot::RwLock;

use crate::cluster;
use crate::principal::{NODE_EMAIL, Principal};

/// Whom the metadata server's paths answer for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MetadataFlavor {
    /// A node, as a machine's own server does: what a pod on the host's network reaches. No bucket lets the node in.
    #[default]
    Node,
    /// A pod, as GKE's server does for a pod on a network of its own: tokens stand for its service account.
    Pod {
        /// Namespace of the pod's service account.
        namespace: String,
        /// Name of the pod's service account.
        service_account: String,
    },
}

impl MetadataFlavor {
    /// The `Server` header.
    pub(super) fn server(&self) -> &'static str {
        match self {
            Self::Node => "Metadata Server for VM",
            Self::Pod { .. } => "GKE Metadata Server",
        }
    }

    pub(super) fn principal(&self) -> Principal {
        match self {
            Self::Node => Principal::Node,
            Self::Pod {
                namespace,
                service_account,
            } => Principal::Workload {
                pool: cluster::POOL.to_owned(),
                subject: format!("ns/{namespace}/sa/{service_account}"),
            },
        }
    }

    /// The address of the account. A pod without a service account of Google's has its pool's name there.
    pub(super) fn email(&self) -> &'static str {
        match self {
            Self::Node => NODE_EMAIL,
            Self::Pod { .. } => cluster::POOL,
        }
    }
}

/// The flavor of each address that is listened on.
#[derive(Debug)]
pub(crate) struct Flavors(RwLock<Inner>);

#[derive(Debug)]
struct Inner {
    usual: MetadataFlavor,
    by_address: BTreeMap<SocketAddr, MetadataFlavor>,
}

impl Flavors {
    pub(crate) fn new(usual: MetadataFlavor) -> Self {
        Self(RwLock::new(Inner {
            usual,
            by_address: BTreeMap::new(),
        }))
    }

    /// Sets the flavor of every address, or of one alone.
    pub(crate) fn set(&self, local: Option<SocketAddr>, flavor: MetadataFlavor) {
        let mut inner = self.0.write();
        match local {
            Some(local) => {
                inner.by_address.insert(local, flavor);
            }
            None => {
                inner.by_address.clear();
                inner.usual = flavor;
            }
        }
    }

    pub(super) fn at(&self, local: SocketAddr) -> MetadataFlavor {
        let inner = self.0.read();
        let own = inner.by_address.get(&local);
        own.unwrap_or(&inner.usual).clone()
    }
}
