//! The steps, as a table or as JSON.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use serde_json::json;

use super::checks::{Finding, Verdict};
use crate::exit::Failure;

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    rows: Vec<Row>,
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Row {
    name: &'static str,
    verdict: Verdict,
    text: String,
    took: Duration,
}

impl Report {
    /// Runs a step and keeps what it finds.
    pub(super) async fn step(
        &mut self,
        name: &'static str,
        check: impl Future<Output = Result<Finding, Failure>>,
    ) {
        let begun = Instant::now();
        match check.await {
            Ok(Finding { verdict, text }) => self.add(name, verdict, text, begun),
            Err(failure) => {
                self.add(name, Verdict::Fails, failure.sentence.clone(), begun);
                self.failure.get_or_insert(failure);
            }
        }
    }

    /// Keeps a finding of a step that began at `begun`.
    pub(super) fn add(
        &mut self,
        name: &'static str,
        verdict: Verdict,
        text: String,
        begun: Instant,
    ) {
        self.rows.push(Row {
            name,
            verdict,
            text,
            took: begun.elapsed(),
        });
    }

    /// Prints it all. The outcome is the first failure.
    pub(super) fn finish(self, as_json: bool) -> Result<(), Failure> {
        let text = if as_json { self.json() } else { self.table() };
        // A closed pipe is the reader's wish.
        let _ = io::stdout().write_all(text.as_bytes());
        self.failure.map_or(Ok(()), Err)
    }

    fn table(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let lines: Vec<_> = row.text.lines().collect();
            let took = format!("{:.0} ms", row.took.as_secs_f64() * 1e3);
            for (n, line) in lines.iter().enumerate() {
                let (name, verdict, took) = if n == 0 {
                    (row.name, row.verdict.word(), took.as_str())
                } else {
                    ("", "", "")
                };
                text.push_str(&format!("{name:<12} {verdict:<6} {took:>8}  {line}\n"));
            }
        }
        text
    }

    fn json(&self) -> String {
        let steps: Vec<_> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "step": row.name,
                    "verdict": row.verdict.word(),
                    "text": row.text,
                    "milliseconds": row.took.as_secs_f64() * 1e3,
                })
            })
            .collect();
        let exit = self
            .failure
            .as_ref()
            .map_or(0, |failure| failure.exit as u8);
        format!("{:#}\n", json!({ "steps": steps, "exit": exit }))
    }
}
