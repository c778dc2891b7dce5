//! What the demo says: one line a step, as it happens.

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

/// The table of steps, printed row by row; remembers whether every check held.
#[derive(Debug)]
pub(super) struct Report {
    colour: bool,
    failed: usize,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            colour: io::stdout().is_terminal(),
            failed: 0,
        }
    }
}

impl Report {
    /// How many checks did not hold.
    #[must_use]
    pub(super) fn failed(&self) -> usize {
        self.failed
    }

    /// Prints a fact that is no check.
    pub(super) fn fact(&self, name: &str, text: &str) {
        say(&format!("  {name:<10} {text}\n"));
    }

    /// Prints a blank line and then `text`.
    pub(super) fn heading(&self, text: &str) {
        say(&format!("\n{text}\n\n"));
    }

    /// Prints the row of a step that began at `begun`.
    pub(super) fn row(&mut self, name: &str, outcome: Result<String, String>, begun: Instant) {
        let seconds = begun.elapsed().as_secs_f64();
        let (mark, colour, text) = match outcome {
            Ok(text) => ("ok", "32", text),
            Err(text) => {
                self.failed += 1;
                ("FAILED", "31", text)
            }
        };
        let mark = if self.colour {
            format!("\x1b[{colour}m{mark:<6}\x1b[0m")
        } else {
            format!("{mark:<6}")
        };
        say(&format!("  {name:<18} {mark} {seconds:>6.2} s  {text}\n"));
    }
}

/// Writes to standard output; a closed pipe is the reader's wish and no error.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
