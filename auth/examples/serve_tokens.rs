//! A token socket for a stock gcsfuse (`--token-url unix:///PATH`): serves the identity of a
//! projected token until its input ends.
//!
//! To run it against the emulator of this project, from the root of the workspace:
//!
//! ```sh
//! cargo run -- emulator --bucket demo &        # on http://127.0.0.1:9000; `kill %1` stops it
//! E=http://127.0.0.1:9000
//! curl -s $E/_emulator/tokens -d '{"namespace": "ns", "service_account": "sa"}' |
//!     sed 's/.*"token": *"\([^"]*\)".*/\1/' > /tmp/subject-token
//! cargo run -p gcsmount-auth --example serve_tokens -- /tmp/token.sock /tmp/subject-token $E
//! ```
//!
//! and in another terminal, until Ctrl-D in the first:
//!
//! ```sh
//! curl --unix-socket /tmp/token.sock http://unix/
//! ```
//!
//! In a pod of GKE the first two arguments are enough.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use gcsmount_auth::{
    Broker, BrokerConfig, Endpoint, FileSource, Routes, SocketConfig, TokenSocket,
};
use tokio::io::AsyncReadExt;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, token_file, rest @ ..] = arguments.as_slice() else {
        return Err("usage: serve_tokens SOCKET TOKEN_FILE [STS_URL]".into());
    };
    let mut config = BrokerConfig::new(Arc::new(FileSource::new(token_file)));
    if let Some(sts) = rest.first() {
        config.sts = Endpoint::parse(sts)?;
    }
    let broker = Broker::spawn(config)?;
    let socket = TokenSocket::bind(SocketConfig::new(path, Routes::Any(broker))).await?;
    println!(
        "serving at {}; close the input to stop",
        socket.path().display()
    );
    let mut nothing = Vec::new();
    tokio::io::stdin().read_to_end(&mut nothing).await?;
    println!("tokens were asked for {} times", socket.status().answered);
    socket.stop().await;
    Ok(())
}
