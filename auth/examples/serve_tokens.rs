//! A token socket for a stock gcsfuse (`--token-url unix:///PATH`): serves the identity of a
//! projected token until its input ends.
//!
//! ```sh
//! serve_tokens /run/token.sock TOKEN_FILE [STS_URL] &
//! curl --unix-socket /run/token.sock http://unix/
//! ```

use std::error::Error;
use std::sync::Arc;

use gcsmount_auth::{
    Broker, BrokerConfig, Endpoint, FileSource, Routes, SocketConfig, TokenSocket,
};
use tokio::io::AsyncReadExt;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
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
    println!("{:?}", socket.status());
    socket.stop().await;
    Ok(())
}
