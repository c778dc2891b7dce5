//! A full run with everything logged and every error and value shown: no piece of a token in it.
//! A binary of its own, since the log of a whole process can be caught once only.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gcsmount_auth::{Broker, BrokerConfig, FileSource, Source, Timeouts};
use google_cloud_auth::credentials::CacheableResource;
use http::{Extensions, StatusCode};
use tempfile::tempdir;
use tracing_subscriber::fmt::MakeWriter;

#[path = "it/sts.rs"]
mod sts;

use sts::{Reply, Sts, gke_claims, granted, jwt};

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
        .chain(["ya29", "granted-token", "in-the-wrong-place"]);
    for secret in secrets {
        assert!(!shown.contains(secret), "{secret} is shown in {shown}");
    }
}
