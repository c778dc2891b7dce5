//! The two metadata servers, told apart.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gcsmount_auth::error::Refusal;
use gcsmount_auth::{Exchange, Kind, Metadata, Timeouts, Whose};
use http::header::SERVER;
use http::{HeaderValue, Response};
use serde_json::json;

use crate::web::{Web, says};

async fn server(name: &'static str, flavored: bool) -> Web {
    Web::start(move |seen| {
        assert_eq!(seen.headers["metadata-flavor"], "Google");
        let mut told: Response<_> = match seen.target.contains("/token") {
            true => says(
                200,
                &json!({"access_token": "t", "token_type": "Bearer", "expires_in": 77}),
            ),
            false => says(200, ""),
        };
        told.headers_mut()
            .insert(SERVER, HeaderValue::from_static(name));
        if flavored {
            told.headers_mut()
                .insert("metadata-flavor", HeaderValue::from_static("Google"));
        }
        told
    })
    .await
}

fn metadata(web: &Web, whose: impl Into<Option<Whose>>) -> Metadata {
    let host = web.url("").replace("http://", "");
    let timeouts = Timeouts {
        exchange: Duration::from_secs(5),
        ..Timeouts::default()
    };
    Metadata::new(&host, whose, "one two".to_owned(), timeouts).unwrap()
}

#[test]
fn a_host_may_be_given_as_a_url() {
    for host in ["h:1", "http://h:1", "http://h:1/"] {
        let made = Metadata::new(host, None, String::new(), Timeouts::default()).unwrap();
        let source = made.identity().source;
        assert_eq!(source, "the metadata server at http://h:1", "{host}");
    }
    for host in ["h:99999", "http://h:x", "https://h", ""] {
        let refused = Metadata::new(host, None, String::new(), Timeouts::default());
        assert_eq!(refused.unwrap_err().kind(), Kind::Config, "{host}");
    }
}

#[tokio::test]
async fn a_server_gives_tokens_of_whom_it_answers_for_and_of_nobody_else() {
    for (name, found) in [
        ("GKE Metadata Server", Whose::Pod),
        ("Metadata Server for VM", Whose::Node),
        ("something", Whose::Node),
    ] {
        let web = server(name, true).await;
        for wanted in [Whose::Pod, Whose::Node] {
            let metadata = metadata(&web, wanted);
            assert_eq!(metadata.probe().await.unwrap(), found);
            match metadata.exchange().await {
                Ok(grant) => {
                    assert_eq!(wanted, found);
                    assert_eq!((grant.token.expose(), grant.lifetime.as_secs()), ("t", 77));
                }
                Err(error) => {
                    assert_ne!(wanted, found);
                    assert_eq!(error.kind(), Kind::Refused(Refusal::Denied));
                    assert!(error.is_permanent_for_mount());
                }
            }
        }
        let asked = web.seen().pop().unwrap().target;
        assert!(
            asked.ends_with("/default/token?scopes=one%2Ctwo"),
            "{asked}"
        );
    }
}

#[tokio::test]
async fn what_is_no_metadata_server_is_not_believed() {
    let web = server("GKE Metadata Server", false).await;
    let metadata = metadata(&web, Whose::Pod);
    assert_eq!(metadata.probe().await.unwrap_err().kind(), Kind::BadAnswer);
    assert_eq!(
        metadata.exchange().await.unwrap_err().kind(),
        Kind::BadAnswer
    );
}

#[tokio::test]
async fn a_refusal_is_told() {
    let web = Web::start(|_| says(404, "")).await;
    let error = metadata(&web, Whose::Node).exchange().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Refused(Refusal::Request));
    let nowhere = Metadata::new("a b", Whose::Node, String::new(), Timeouts::default());
    assert_eq!(nowhere.unwrap_err().kind(), Kind::Config);
}

/// A server that is one of a pod or of a node by turns, as `script` has it; `None` has trouble.
async fn turns(script: &'static [Option<Whose>]) -> Web {
    let turn = AtomicUsize::new(0);
    Web::start(move |_| {
        let whose = script[turn.fetch_add(1, Ordering::SeqCst)];
        let token = json!({"access_token": "t", "token_type": "Bearer", "expires_in": 77});
        let mut told = match whose {
            Some(_) => says(200, &token),
            None => says(503, ""),
        };
        let headers = told.headers_mut();
        headers.insert("metadata-flavor", HeaderValue::from_static("Google"));
        if whose == Some(Whose::Pod) {
            headers.insert(SERVER, HeaderValue::from_static("GKE Metadata Server"));
        }
        told
    })
    .await
}

#[tokio::test]
async fn the_first_token_decides_for_whom_and_the_other_one_is_refused_from_then_on() {
    const POD: Option<Whose> = Some(Whose::Pod);
    const NODE: Option<Whose> = Some(Whose::Node);
    for (script, words, others) in [
        (
            &[None, POD, NODE, None, POD][..],
            "for this pod",
            "answers for the node",
        ),
        (
            &[None, NODE, POD, None, NODE],
            "for the node",
            "answers for this pod",
        ),
    ] {
        let web = turns(script).await;
        let metadata = metadata(&web, None);
        let name = format!("the metadata server at {}", web.url(""));
        assert_eq!(
            metadata.exchange().await.unwrap_err().kind(),
            Kind::Unavailable
        );
        assert_eq!(metadata.identity().source, name, "trouble decides nothing");
        metadata.exchange().await.unwrap();
        let decided = format!("{name}, {words}");
        assert_eq!(metadata.identity().source, decided);
        let refused = metadata.exchange().await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Refused(Refusal::Denied));
        assert!(refused.message().contains(others), "{refused}");
        assert_eq!(
            metadata.exchange().await.unwrap_err().kind(),
            Kind::Unavailable
        );
        metadata.exchange().await.unwrap();
        assert_eq!(metadata.identity().source, decided);
    }
}

#[tokio::test]
async fn an_answer_without_a_token_decides_nothing() {
    let web = Web::start(|_| {
        let mut told = says(200, "{}");
        let headers = told.headers_mut();
        headers.insert("metadata-flavor", HeaderValue::from_static("Google"));
        told
    })
    .await;
    let metadata = metadata(&web, None);
    assert_eq!(
        metadata.exchange().await.unwrap_err().kind(),
        Kind::BadAnswer
    );
    assert_eq!(metadata.probe().await.unwrap(), Whose::Node);
    assert!(!metadata.identity().source.contains("node"));
}
