//! File to claims to token service and back, over a real socket: one attempt each.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gcsmount_auth::broker::CLOUD_PLATFORM;
use gcsmount_auth::error::{Reach, Refusal, SourceFault};
use gcsmount_auth::{
    Audience, Broker, BrokerConfig, Endpoint, Error, Exchange, Federation, FileSource, Grant, Kind,
    Timeouts,
};
use serde_json::json;
use tempfile::{TempDir, tempdir};
use tokio::net::TcpListener;

use crate::sts::{Reply, Sts, gke_claims, granted, jwt};

const AUDIENCE: &str = "identitynamespace:demo.svc.id.goog:\
                        https://container.googleapis.com/v1/projects/demo/locations/l/clusters/c";

fn token_file(content: &str) -> (TempDir, std::path::PathBuf) {
    let dir = tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, content).unwrap();
    (dir, path)
}

fn federation(path: &Path, endpoint: Endpoint, audience: Audience) -> Federation {
    let timeouts = Timeouts {
        exchange: Duration::from_secs(5),
        ..Timeouts::default()
    };
    let source = Arc::new(FileSource::new(path));
    Federation::new(
        source,
        audience,
        endpoint,
        CLOUD_PLATFORM.to_owned(),
        timeouts,
    )
    .unwrap()
}

/// One exchange of a good token that meets this reply.
async fn meets(reply: Reply) -> Result<Grant, Error> {
    let sts = Sts::start([reply]).await;
    let (_dir, path) = token_file(&jwt(&gke_claims()));
    federation(&path, sts.endpoint(), Audience::FromToken)
        .exchange()
        .await
}

#[tokio::test]
async fn a_projected_token_becomes_an_access_token() {
    let sts = Sts::start([Reply::Grant(3600)]).await;
    let subject = jwt(&gke_claims());
    let (_dir, path) = token_file(&format!("{subject}\n"));
    let federation = federation(&path, sts.endpoint(), Audience::FromToken);
    let grant = federation.exchange().await.unwrap();
    assert_eq!(grant.token.expose(), granted(1));
    assert_eq!(grant.lifetime, Duration::from_secs(3600));
    let form = &sts.forms()[0];
    assert_eq!(
        (form["subject_token"].as_str(), form["audience"].as_str()),
        (&*subject, AUDIENCE)
    );
    assert_eq!(form["scope"], CLOUD_PLATFORM);
    let identity = federation.identity();
    assert_eq!(identity.source, path.display().to_string());
    assert_eq!(identity.audience.as_deref(), Some(AUDIENCE));
    assert_eq!(
        identity.subject.as_deref(),
        Some("system:serviceaccount:ns:ksa")
    );
    assert!(
        identity
            .principal
            .unwrap()
            .ends_with("/subject/ns/ns/sa/ksa")
    );
}

#[tokio::test]
async fn a_rotated_file_is_sent_at_the_next_exchange_over_the_same_connection() {
    let sts = Sts::start([Reply::Grant(3600)]).await;
    let (first, second) = (
        jwt(&gke_claims()),
        jwt(&json!({"aud": "x", "jti": "second"})),
    );
    let (_dir, path) = token_file(&first);
    let audience = Audience::Explicit("explicit".to_owned());
    let federation = federation(&path, sts.endpoint(), audience);
    federation.exchange().await.unwrap();
    std::fs::write(&path, &second).unwrap();
    federation.exchange().await.unwrap();
    let sent: Vec<_> = sts
        .forms()
        .iter()
        .map(|form| form["subject_token"].clone())
        .collect();
    assert_eq!(sent, [first, second]);
    assert!(
        sts.forms()
            .iter()
            .all(|form| form["audience"] == "explicit")
    );
}

#[tokio::test]
async fn answers_have_their_kind() {
    let status = |code, body: &str| Reply::Status(code, body.to_owned(), Vec::new());
    for (reply, kind) in [
        (
            status(400, r#"{"error":"invalid_grant"}"#),
            Kind::Refused(Refusal::Grant),
        ),
        (
            status(400, r#"{"error":"invalid_target"}"#),
            Kind::Refused(Refusal::Audience),
        ),
        (
            status(403, r#"{"error":"access_denied"}"#),
            Kind::Refused(Refusal::Denied),
        ),
        (status(404, "<html>"), Kind::Refused(Refusal::Request)),
        (status(500, ""), Kind::Unavailable),
        (status(302, ""), Kind::BadAnswer),
        (status(200, "<html>sign in</html>"), Kind::BadAnswer),
        (status(200, &" ".repeat((1 << 20) + 1)), Kind::BadAnswer),
        (Reply::Echo, Kind::Refused(Refusal::Grant)),
        (Reply::Raw(b"SSH-2.0-OpenSSH_9.6\r\n"), Kind::BadAnswer),
        (
            Reply::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"acc"),
            Kind::BadAnswer,
        ),
        (Reply::Raw(b""), Kind::Unreachable(Reach::Network)),
    ] {
        let error = meets(reply.clone()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{reply:?}: {error}");
        assert!(error.to_string().contains("127.0.0.1"), "{error}");
    }
}

#[tokio::test]
async fn retry_after_is_read_from_the_answer() {
    let reply = Reply::Status(429, String::new(), vec![("retry-after", "17")]);
    let error = meets(reply).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.retry_after()),
        (Kind::Throttled, Some(Duration::from_secs(17)))
    );
}

#[tokio::test]
async fn a_service_that_never_answers_is_given_up() {
    let sts = Sts::start([Reply::Hang]).await;
    let (_dir, path) = token_file(&jwt(&gke_claims()));
    let timeouts = Timeouts {
        exchange: Duration::from_millis(50),
        ..Timeouts::default()
    };
    let source = Arc::new(FileSource::new(path));
    let scope = CLOUD_PLATFORM.to_owned();
    let exchange =
        Federation::new(source, Audience::FromToken, sts.endpoint(), scope, timeouts).unwrap();
    assert_eq!(exchange.exchange().await.unwrap_err().kind(), Kind::Timeout);
}

#[tokio::test]
async fn what_cannot_be_reached_says_why() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    let no_name = format!("http://{}.invalid", "a".repeat(64));
    let (_dir, path) = token_file(&jwt(&gke_claims()));
    for (url, kind) in [
        (
            format!("http://{closed}"),
            Kind::Unreachable(Reach::Network),
        ),
        (no_name, Kind::Unreachable(Reach::UnknownHost)),
    ] {
        let endpoint = Endpoint::parse(&url).unwrap();
        let error = federation(&path, endpoint, Audience::FromToken)
            .exchange()
            .await
            .unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
}

#[tokio::test]
async fn a_service_without_tls_behind_https_is_a_matter_of_tls() {
    let sts = Sts::start([Reply::Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")]).await;
    let https = sts.endpoint().to_string().replace("http://", "https://");
    let (_dir, path) = token_file(&jwt(&gke_claims()));
    let source = Arc::new(FileSource::new(path));
    let endpoint = Endpoint::parse(&https).unwrap();
    let scope = CLOUD_PLATFORM.to_owned();
    match Federation::new(
        source,
        Audience::FromToken,
        endpoint,
        scope,
        Timeouts::default(),
    ) {
        Ok(exchange) => {
            let error = exchange.exchange().await.unwrap_err();
            assert_eq!(error.kind(), Kind::Unreachable(Reach::Tls), "{error}");
        }
        // On a machine that trusts no certificate this is all there is to see.
        Err(error) => assert_eq!(error.kind(), Kind::Config, "{error}"),
    }
}

#[tokio::test]
async fn what_is_in_the_file_is_judged_before_anything_is_sent() {
    let sts = Sts::start([Reply::Grant(60)]).await;
    let custom = jwt(&json!({"aud": "vault", "iss": "https://issuer"}));
    for (content, kind) in [
        ("", Kind::Source(SourceFault::Empty)),
        ("not a jwt", Kind::Source(SourceFault::Malformed)),
        (
            &jwt(&gke_claims())[..60],
            Kind::Source(SourceFault::Malformed),
        ),
        (&custom, Kind::Config),
    ] {
        let (_dir, path) = token_file(content);
        let federation = federation(&path, sts.endpoint(), Audience::FromToken);
        let error = federation.exchange().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    assert!(sts.forms().is_empty());
}

#[tokio::test]
async fn an_expired_token_is_sent_all_the_same_and_explained_when_refused() {
    let refusal = r#"{"error":"invalid_grant","error_description":"stale"}"#.to_owned();
    let sts = Sts::start([Reply::Status(400, refusal, Vec::new()), Reply::Grant(60)]).await;
    let mut claims = gke_claims();
    claims["exp"] = json!(1_000_000_000);
    let (_dir, path) = token_file(&jwt(&claims));
    let federation = federation(&path, sts.endpoint(), Audience::FromToken);
    let error = federation.exchange().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Source(SourceFault::Expired));
    let sentence = error.to_string();
    assert!(sentence.contains(&path.display().to_string()), "{sentence}");
    assert!(sentence.contains("2001-09-09T01:46:40Z"), "{sentence}");
    // Whose clock is right is the service's to say.
    federation.exchange().await.unwrap();
}

#[tokio::test]
async fn pool_and_provider_win_over_the_token() {
    let sts = Sts::start([Reply::Grant(60)]).await;
    let (_dir, path) = token_file(&jwt(&json!({"aud": ["a", "b"]})));
    let audience = Audience::PoolAndProvider {
        pool: "q.svc.id.goog".to_owned(),
        provider: "https://k8s.example".to_owned(),
    };
    federation(&path, sts.endpoint(), audience)
        .exchange()
        .await
        .unwrap();
    let sent = &sts.forms()[0]["audience"];
    assert_eq!(sent, "identitynamespace:q.svc.id.goog:https://k8s.example");
}

#[tokio::test]
async fn a_missing_file_fails_the_start_before_anything_is_sent() {
    let sts = Sts::start([Reply::Grant(3600)]).await;
    let dir = tempdir().unwrap();
    let config = BrokerConfig {
        sts: sts.endpoint(),
        ..BrokerConfig::new(Arc::new(FileSource::new(dir.path().join("token"))))
    };
    let broker = Broker::spawn(config).unwrap();
    let error = broker.token().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Source(SourceFault::Missing));
    assert!(error.is_permanent_for_mount());
    assert!(sts.forms().is_empty());
}

#[tokio::test]
async fn a_broker_gives_what_the_service_gave() {
    let sts = Sts::start([Reply::Grant(3600)]).await;
    let (_dir, path) = token_file(&jwt(&gke_claims()));
    let config = BrokerConfig {
        sts: sts.endpoint(),
        ..BrokerConfig::new(Arc::new(FileSource::new(path)))
    };
    let broker = Broker::spawn(config).unwrap();
    assert_eq!(broker.token().await.unwrap().expose(), granted(1));
    let status = broker.status();
    assert_eq!(status.identity.audience.as_deref(), Some(AUDIENCE));
    assert!(status.expires_in.unwrap() > Duration::from_secs(3500));
}
