//! A full run with everything logged and every error and value shown: no piece of a token in it.
//! A binary of its own, since the log of a whole process can be caught once only.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gcsmount_auth::boundary::Access;
use gcsmount_auth::secret::SubjectToken;
use gcsmount_auth::source::executable::Task;
use gcsmount_auth::{
    Boundary, Broker, BrokerConfig, CredentialFile, CredentialFileConfig, Endpoint, Exchange,
    ExecutableSource, FileSource, Format, FromUrl, Identities, Impersonate, Pushed, Routes,
    SocketConfig, Source, Timeouts, TokenSocket, TokenUrl, Tuning, UrlSource,
};
use google_cloud_auth::credentials::CacheableResource;
use http::{Extensions, StatusCode};
use tempfile::tempdir;
use tracing_subscriber::fmt::MakeWriter;

#[path = "it/sts.rs"]
mod sts;
#[path = "it/web.rs"]
mod web;

use sts::{Reply, Sts, gke_claims, granted, jwt};
use web::{Seen, Web, says};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn no_piece_of_a_token_is_shown_anywhere() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .with_ansi(false)
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let subject = jwt(&gke_claims());
    let dir = tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, &subject).unwrap();
    let mut shown = String::new();
    let leaky = format!(
        r#"{{"access_token":"{}","expires_in":"ya29.in-the-wrong-place"}}"#,
        granted(0)
    );
    let script = [
        Reply::Grant(3600),
        Reply::Echo,
        Reply::Status(200, leaky.clone(), Vec::new()),
        Reply::Status(500, leaky.clone(), Vec::new()),
        Reply::Status(403, subject.clone(), Vec::new()),
        Reply::Raw(b"ya29.in-the-wrong-place is what this server says\r\n\r\n"),
        Reply::Hang,
        Reply::Grant(3600),
    ];
    let replies = script.len();
    for reply in script {
        let sts = Sts::start([reply]).await;
        let source = Arc::new(FileSource::new(&path));
        write!(shown, "{source:?} {:?} ", source.subject_token().await).unwrap();
        let timeouts = Timeouts {
            exchange: Duration::from_secs(1),
            ..Timeouts::default()
        };
        let config = BrokerConfig {
            sts: sts.endpoint(),
            timeouts,
            ..BrokerConfig::new(source)
        };
        write!(shown, "{config:?} ").unwrap();
        let broker = Broker::spawn(config).unwrap();
        let credentials = broker.credentials();
        let token = broker.token().await;
        write!(
            shown,
            "{token:?} {broker:?} {:?} {credentials:?} ",
            broker.status()
        )
        .unwrap();
        if let Err(error) = &token {
            write!(shown, "{error} ").unwrap();
        }
        let headers = credentials.headers(Extensions::new()).await;
        write!(shown, "{headers:?} ").unwrap();
        match headers {
            Ok(CacheableResource::New { entity_tag, .. }) => {
                let mut rejected = Extensions::new();
                rejected.insert(entity_tag);
                rejected.insert(StatusCode::UNAUTHORIZED);
                write!(shown, "{:?} ", credentials.headers(rejected).await).unwrap();
            }
            Ok(CacheableResource::NotModified) => panic!("no tag was given"),
            Err(error) => write!(shown, "{error} {error:?} ").unwrap(),
        }
        assert!(
            sts.forms()
                .iter()
                .all(|form| form["subject_token"] == subject)
        );
    }
    let secrets_of_others = others(&mut shown).await;
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(
        logged.matches("access token").count() >= replies,
        "the run was logged: {logged}"
    );
    assert!(
        shown.contains("invalid") || shown.contains("does not accept"),
        "{shown}"
    );
    shown.push_str(&logged);
    let secrets = subject
        .split('.')
        .chain(["ya29", "granted-token", "in-the-wrong-place"])
        .chain(secrets_of_others);
    for secret in secrets {
        assert!(!shown.contains(secret), "{secret} is shown in {shown}");
    }
}

/// Every other way of a token, each with a server that repeats what it was sent. What none of them
/// may show.
async fn others(shown: &mut String) -> Vec<&'static str> {
    let web = Web::start(repeat).await;
    let dir = tempdir().unwrap();

    // The second steps, with tokens of the first.
    for boundary in [
        None,
        Some(Boundary::around("bucket", "", Access::Read).unwrap()),
    ] {
        let pushed = Pushed::new("pushed");
        let token = SubjectToken::new(jwt(&gke_claims())).unwrap();
        pushed.push(
            token,
            std::time::SystemTime::now() + Duration::from_secs(600),
        );
        let api = "/v1/projects/-/serviceAccounts/gsa@p:generateAccessToken?key=key-in-a-query";
        let impersonate = Impersonate::at(&web.url(api)).unwrap();
        let config = BrokerConfig {
            sts: Endpoint::parse(&web.url("/first?key=key-in-a-query")).unwrap(),
            impersonate: boundary.is_none().then_some(impersonate),
            boundary,
            ..BrokerConfig::new(Arc::new(pushed))
        };
        write!(shown, "{config:?} ").unwrap();
        show(shown, &*config.exchange().unwrap()).await;
    }

    // Tokens from a URL, and a socket that hands on the failure.
    let url = TokenUrl::parse(&web.url("/url?key=key-in-a-query")).unwrap();
    write!(shown, "{url} ").unwrap();
    let from = FromUrl::new(url, Timeouts::default()).unwrap();
    show(shown, &from).await;
    let broker = Broker::with_exchange(Arc::new(from), Tuning::default());
    let path = dir.path().join("token.sock");
    let socket = TokenSocket::bind(SocketConfig::new(&path, Routes::Any(broker)));
    let socket = socket.await.unwrap();
    write!(shown, "{socket:?} ").unwrap();
    let behind = TokenUrl::parse(&format!("unix://{}", path.display())).unwrap();
    show(shown, &FromUrl::new(behind, Timeouts::default()).unwrap()).await;

    // A server of subject tokens, alone and as part of an identity.
    let url = web.url("/subject?key=key-in-a-query");
    let mut headers = http::HeaderMap::new();
    headers.insert("authorization", "header-of-a-source".parse().unwrap());
    let source = UrlSource::new(&url, headers, Format::Text, Timeouts::default());
    let source = Arc::new(source.unwrap());
    write!(shown, "{source:?} {:?} ", source.subject_token().await).unwrap();
    let identities = Identities::new(1);
    let _held = identities.broker(&BrokerConfig::new(source)).unwrap();
    write!(shown, "{identities:?} ").unwrap();

    // Files: a login that is refused, a key that is half there, a program that tells too much.
    let login = serde_json::json!({
        "type": "authorized_user",
        "client_id": "client",
        "client_secret": "secret-of-a-client",
        "refresh_token": "refresh-token-of-a-person",
        "token_uri": web.url("/login?key=key-in-a-query"),
    });
    let key = include_str!("data/test-only-key.pem");
    let account = serde_json::json!({
        "type": "service_account",
        "client_email": "gsa@p",
        "private_key": key,
    });
    let account = account.to_string();
    for content in [
        &*login.to_string(),
        &account,
        &account[..600],
        "\"secret-of-a-client\"",
    ] {
        let path = dir.path().join("credential.json");
        std::fs::write(&path, content).unwrap();
        show(shown, &CredentialFile::new(CredentialFileConfig::new(path))).await;
    }
    let task = Task {
        audience: String::new(),
        token_type: String::new(),
        impersonated: None,
        output_file: None,
    };
    let command = "echo token-of-a-program";
    let program = ExecutableSource::new(command, task, Duration::from_secs(5)).unwrap();
    write!(shown, "{program:?} {:?} ", program.subject_token().await).unwrap();

    assert!(
        web.seen()
            .iter()
            .any(|seen| seen.method == "POST" && !seen.body.is_empty())
    );
    vec![
        "first-token-of-two",
        "key-in-a-query",
        "header-of-a-source",
        "secret-of-a-client",
        "refresh-token-of-a-person",
        "token-of-a-program",
        key.lines().nth(1).unwrap(),
    ]
}

/// Grants the first exchange, and refuses all else with the words that it was asked in.
fn repeat(seen: &Seen) -> web::Told {
    if seen.target.starts_with("/first") && seen.field("options").is_empty() {
        return says(
            200,
            r#"{"access_token":"first-token-of-two","expires_in":60}"#,
        );
    }
    let authorization = seen.headers.get("authorization");
    let repeated = serde_json::json!({
        "error": "invalid_grant",
        "error_description": format!("{} {} {authorization:?}", seen.target, seen.body),
    });
    says(400, &repeated)
}

async fn show(shown: &mut String, exchange: &dyn Exchange) {
    let outcome = exchange.exchange().await;
    if let Err(error) = &outcome {
        write!(shown, "{error} ").unwrap();
    }
    write!(shown, "{exchange:?} {outcome:?} {:?} ", exchange.identity()).unwrap();
}
