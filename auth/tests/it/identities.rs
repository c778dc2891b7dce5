//! Many identities in one process, on paused time: what is shared, what is not, what is forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use gcsmount_auth::boundary::Access;
use gcsmount_auth::broker::Key;
use gcsmount_auth::{
    Audience, Boundary, Broker, BrokerConfig, Endpoint, Error, Exchange, FileSource, Identities,
    Kind, Tuning, Universe,
};
use tempfile::tempdir;

use crate::doubles::{Scripted, Step, TestClock, pass};
use crate::sts::{Reply, Sts, gke_claims, jwt};

fn tuning() -> Tuning {
    Tuning {
        clock: TestClock::new(),
        seed: 5,
        ..Tuning::default()
    }
}

fn scripted(identities: &Identities, name: &str, exchange: &Arc<Scripted>) -> Broker {
    let exchange = Arc::clone(exchange) as Arc<dyn Exchange>;
    identities
        .get_or_start(Key::named(name), tuning(), || Ok(exchange))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_thousand_volumes_of_one_identity_cost_one_exchange_in_a_token_s_life() {
    let identities = Identities::new(8);
    let exchange = Scripted::new([Step::Grant(3600)]);
    let volumes: Vec<_> = (0..1000)
        .map(|_| scripted(&identities, "ksa", &exchange))
        .collect();
    let tokens = join_all(volumes.iter().map(Broker::token)).await;
    assert!(
        tokens
            .iter()
            .all(|token| token.as_ref().unwrap().expose() == "tok-1")
    );
    assert_eq!((exchange.count(), identities.len()), (1, 1));
    pass(3600).await;
    let tokens = join_all(volumes.iter().map(Broker::token)).await;
    assert!(
        tokens
            .iter()
            .all(|token| token.as_ref().unwrap().expose() == "tok-2")
    );
    assert_eq!((exchange.count(), exchange.most_at_once()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn an_identity_that_nobody_holds_is_forgotten_and_its_exchanges_end() {
    let identities = Identities::new(1);
    let exchange = Scripted::new([Step::Grant(8)]);
    let first = scripted(&identities, "a", &exchange);
    let second = scripted(&identities, "a", &exchange);
    first.token().await.unwrap();
    drop(first);
    assert_eq!(identities.len(), 1);
    second.token().await.unwrap();
    drop(second);
    assert!(identities.is_empty());
    let count = exchange.count();
    pass(600).await;
    assert_eq!(exchange.count(), count);
    // The place is free for another one, and the same one begins anew.
    drop(scripted(&identities, "b", &exchange));
    scripted(&identities, "a", &exchange).token().await.unwrap();
    assert_eq!(exchange.count(), count + 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_table_refuses_a_new_identity_and_goes_on_with_those_it_has() {
    let identities = Identities::new(2);
    let exchange = Scripted::new([Step::Grant(60)]);
    let held = ["a", "b"].map(|name| scripted(&identities, name, &exchange));
    let asked = AtomicUsize::new(0);
    let refused = identities.get_or_start(Key::named("c"), tuning(), || {
        asked.fetch_add(1, Ordering::SeqCst);
        Ok(Arc::clone(&exchange) as _)
    });
    assert_eq!(refused.unwrap_err().kind(), Kind::Config);
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    scripted(&identities, "a", &exchange).token().await.unwrap();
    held[1].token().await.unwrap();
}

#[tokio::test]
async fn an_exchange_that_cannot_be_made_takes_no_place() {
    let identities = Identities::new(1);
    let failed = identities.get_or_start(Key::named("a"), tuning(), || {
        Err(Error::new(Kind::Config, "cannot be made"))
    });
    assert_eq!(failed.unwrap_err().message(), "cannot be made");
    assert!(identities.is_empty());
}

#[tokio::test]
async fn each_part_of_the_key_makes_another_identity() {
    let dir = tempdir().unwrap();
    let sts = Sts::start([Reply::Grant(3600)]).await;
    for name in ["one", "two"] {
        std::fs::write(dir.path().join(name), jwt(&gke_claims())).unwrap();
    }
    let of = |name: &str| BrokerConfig {
        sts: sts.endpoint(),
        ..BrokerConfig::new(Arc::new(FileSource::new(dir.path().join(name))))
    };
    let endpoint = format!("{}?other", sts.endpoint());
    let configs = [
        of("one"),
        of("two"),
        BrokerConfig {
            audience: Audience::Explicit("other".to_owned()),
            ..of("one")
        },
        BrokerConfig {
            scope: "other".to_owned(),
            ..of("one")
        },
        BrokerConfig {
            boundary: Some(Boundary::around("bucket", "", Access::Read).unwrap()),
            ..of("one")
        },
        BrokerConfig {
            universe: Universe::parse("other.example").unwrap(),
            ..of("one")
        },
        BrokerConfig {
            sts: Endpoint::parse(&endpoint).unwrap(),
            ..of("one")
        },
    ];
    let identities = Identities::new(100);
    let brokers: Vec<_> = configs
        .iter()
        .chain(&configs)
        .map(|config| identities.broker(config).unwrap())
        .collect();
    assert_eq!(identities.len(), configs.len());
    for broker in &brokers {
        broker.token().await.unwrap();
    }
    // Limiting a token takes a second exchange.
    assert_eq!(sts.forms().len(), configs.len() + 1);
    let tokens: std::collections::HashSet<_> = brokers
        .iter()
        .map(|broker| broker.current().unwrap().expose().to_owned())
        .collect();
    assert_eq!(tokens.len(), configs.len());
}
