//! Serves an emulator until it is interrupted: `serve ADDR:PORT required|off BUCKET…`.

use std::error::Error;

use gcsmount_emulator::{Config, Emulator};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let listen = args
        .next()
        .ok_or("usage: serve ADDR:PORT required|off BUCKET...")?;
    let auth = args.next().unwrap_or_else(|| "required".to_owned());
    let config = Config {
        listen: vec![listen.parse()?],
        auth: auth.parse()?,
        buckets: args.collect(),
        ..Config::default()
    };
    let emulator = Emulator::start(config).await?;
    println!("{}", emulator.endpoint());
    tokio::signal::ctrl_c().await?;
    emulator.shutdown().await;
    Ok(())
}
