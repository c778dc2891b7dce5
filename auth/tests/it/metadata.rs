//! The two metadata servers, told apart.

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

fn metadata(web: &Web, whose: Whose) -> Metadata {
    let host = web.url("").replace("http://", "");
    let timeouts = Timeouts {
        exchange: Duration::from_secs(5),
        ..Timeouts::default()
    };
    Metadata::new(&host, whose, "one two".to_owned(), timeouts).unwrap()
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
