//! The `gcsmount` program.

use std::io::Write;
use std::process::ExitCode;

use gcsmount::cli::{self, Invocation};
use gcsmount::exit::Failure;
use gcsmount::params::Role;
use gcsmount::{background, demo, doctor, emulate, lifecycle, mount, sidecar, token};

fn main() -> ExitCode {
    lifecycle::give_memory_back();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // In the background the waiting process says it.
            if !background::is_background() {
                let _ = writeln!(std::io::stderr(), "gcsmount: {failure}");
            }
            failure.exit.into()
        }
    }
}

fn run() -> Result<(), Failure> {
    match cli::parse(std::env::args_os(), |name| std::env::var(name).ok())? {
        Invocation::Print(text) => {
            // A closed pipe is the reader's wish.
            let _ = std::io::stdout().write_all(text.as_bytes());
            Ok(())
        }
        Invocation::Run(Role::Mount, settings) => mount::run(&settings),
        Invocation::Run(Role::Demo, settings) => demo::run(&settings),
        Invocation::Run(Role::Emulator, settings) => emulate::run(&settings),
        Invocation::Run(Role::TokenServe, settings) => token::serve(&settings),
        Invocation::Run(Role::TokenShow, settings) => doctor::show_token(&settings),
        Invocation::Run(Role::Doctor, settings) => doctor::run(&settings),
        Invocation::Run(Role::Sidecar, settings) => sidecar::run(&settings),
    }
}
