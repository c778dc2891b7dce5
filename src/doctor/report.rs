//! The steps, as a table or as JSON.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::layout::{width, wrap};
use crate::exit::{Exit, Failure};
use crate::explain::Explanation;

/// How a step went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As it should be.
    Holds,
    /// Works, but will bite.
    Warns,
    /// Keeps the bucket from being mounted.
    Fails,
    /// Not tried, since a step before it failed or it has no answer here.
    Skipped,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Holds => "ok",
            Self::Warns => "warn",
            Self::Fails => "FAILED",
            Self::Skipped => "skipped",
        }
    }
}

/// A line of a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// Prose, which may be broken.
    Text(String),
    /// A command or a name, which is copied whole.
    Whole(String),
}

/// What a step found: for people in lines, for programs in fields.
#[derive(Debug, PartialEq)]
pub(super) struct Finding {
    pub(super) verdict: Verdict,
    lines: Vec<Line>,
    fields: Map<String, Value>,
}

impl Finding {
    /// Nothing yet.
    pub(super) fn new(verdict: Verdict) -> Self {
        Self {
            verdict,
            lines: Vec::new(),
            fields: Map::new(),
        }
    }

    /// With a line of prose more.
    pub(super) fn text(mut self, text: impl Into<String>) -> Self {
        self.lines.push(Line::Text(text.into()));
        self
    }

    /// With a line more that stays as it is.
    pub(super) fn whole(mut self, text: impl Into<String>) -> Self {
        self.lines.push(Line::Whole(text.into()));
        self
    }

    /// With a field more. Names are those of steps' documentation in the README, and stay.
    pub(super) fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }
}

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    rows: Vec<Row>,
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Row {
    name: &'static str,
    finding: Finding,
    took: Duration,
}

impl Report {
    /// Runs a step and keeps what it finds. Whether the steps behind it make sense.
    pub(super) async fn step(
        &mut self,
        name: &'static str,
        check: impl Future<Output = Result<Finding, Failure>>,
    ) -> bool {
        let begun = Instant::now();
        let outcome = check.await.map_err(|failure| {
            let finding = Finding::new(Verdict::Fails).text(failure.sentence.clone());
            (finding, failure)
        });
        self.keep(name, begun, outcome)
    }

    /// The same for a step that fails with an explanation in parts.
    pub(super) async fn explained(
        &mut self,
        name: &'static str,
        check: impl Future<Output = Result<Finding, Explanation>>,
    ) -> bool {
        let begun = Instant::now();
        let outcome = check.await.map_err(|explanation| {
            let said = Finding::new(Verdict::Fails)
                .text(explanation.what.clone())
                .text(explanation.fix.clone());
            let finding = match &explanation.command {
                Some(command) => said
                    .whole(command.clone())
                    .field("command", command.clone()),
                None => said,
            };
            (finding, explanation.failure())
        });
        self.keep(name, begun, outcome)
    }

    fn keep(
        &mut self,
        name: &'static str,
        begun: Instant,
        outcome: Result<Finding, (Finding, Failure)>,
    ) -> bool {
        let took = begun.elapsed();
        let (finding, failure) = match outcome {
            Ok(finding) => (finding, None),
            Err((finding, failure)) => (finding, Some(failure)),
        };
        let goes_on = failure.is_none();
        if let Some(failure) = failure {
            self.failure
                .get_or_insert(Failure::new(failure.exit, failed(name)));
        }
        self.rows.push(Row {
            name,
            finding,
            took,
        });
        goes_on
    }

    /// Keeps that these steps were not tried, and why.
    pub(super) fn skip(&mut self, names: &[&'static str], why: &str) {
        self.rows.extend(names.iter().map(|name| Row {
            name,
            finding: Finding::new(Verdict::Skipped).text(why),
            took: Duration::ZERO,
        }));
    }

    /// Prints it all. The outcome is the first failure, in a few words: the rest is printed already.
    pub(super) fn finish(self, as_json: bool) -> Result<(), Failure> {
        let text = if as_json {
            self.json()
        } else {
            self.table(width())
        };
        match io::stdout().write_all(text.as_bytes()) {
            // A closed pipe is the reader's wish.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(
                Exit::Other,
                format!("the report cannot be written to standard output: {error}"),
            )),
            _ => self.failure.map_or(Ok(()), Err),
        }
    }

    fn table(&self, width: usize) -> String {
        const TEXT: usize = 32;
        /// Below this the column is too narrow to be read.
        const NARROWEST: usize = 40;
        let room = width.saturating_sub(TEXT).max(NARROWEST);
        let mut text = String::new();
        for row in &self.rows {
            let verdict = row.finding.verdict;
            let took = match verdict {
                Verdict::Skipped => String::new(),
                Verdict::Holds | Verdict::Warns | Verdict::Fails => {
                    format!("{:.0} ms", row.took.as_secs_f64() * 1e3)
                }
            };
            let mut head = (row.name, verdict.word(), took.as_str());
            let lines = row.finding.lines.iter().flat_map(|line| match line {
                Line::Text(text) => wrap(text, room),
                Line::Whole(text) => vec![text.clone()],
            });
            for line in lines {
                let (name, word, took) = std::mem::take(&mut head);
                text.push_str(&format!("{name:<12} {word:<7} {took:>9}  {line}\n"));
            }
        }
        text
    }

    fn json(&self) -> String {
        let steps: Vec<_> = self.rows.iter().map(Row::json).collect();
        let exit = self
            .failure
            .as_ref()
            .map_or(0, |failure| failure.exit as u8);
        format!(
            "{:#}\n",
            serde_json::json!({ "steps": steps, "exit": exit })
        )
    }
}

impl Row {
    fn json(&self) -> Value {
        let lines = self.finding.lines.iter();
        let text: Vec<_> = lines
            .map(|line| match line {
                Line::Text(text) | Line::Whole(text) => text.as_str(),
            })
            .collect();
        let mut row = self.finding.fields.clone();
        row.insert("step".into(), self.name.into());
        row.insert("verdict".into(), self.finding.verdict.word().into());
        row.insert("text".into(), text.join("\n").into());
        let tenths = (self.took.as_secs_f64() * 1e4).round();
        row.insert("milliseconds".into(), (tenths / 10.0).into());
        row.into()
    }
}

fn failed(step: &str) -> String {
    format!("the step {step:?} failed; the report says why")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    /// One step that holds, one that fails, and one that depends on it.
    async fn broken() -> Report {
        let mut report = Report::default();
        let holds = Finding::new(Verdict::Holds)
            .text("an access token for 9 s more")
            .field("expires_in", 9);
        assert!(report.step("exchange", async { Ok(holds) }).await);
        let refusal = Explanation {
            exit: Exit::Denied,
            what: "the bucket refuses somebody with a name".into(),
            fix: "grant it a role".into(),
            command: Some("gcloud storage grant --this-is-a-long-command".into()),
        };
        assert!(!report.explained("bucket", async { Err(refusal) }).await);
        report.skip(&["permissions"], "no bucket");
        for row in &mut report.rows {
            row.took = Duration::from_nanos(1_234_567);
        }
        report
    }

    #[tokio::test]
    async fn the_table_keeps_its_columns_and_its_commands_whole() {
        let table = broken().await.table(60);
        assert_eq!(
            table,
            "\
exchange     ok           1 ms  an access token for 9 s more
bucket       FAILED       1 ms  the bucket refuses somebody with a name
                                grant it a role
                                gcloud storage grant --this-is-a-long-command
permissions  skipped            no bucket
"
        );
        let narrow = broken().await.table(20);
        assert_eq!(narrow, table, "no narrower than can be read");
    }

    #[tokio::test]
    async fn programs_get_fields_and_the_exit_code() {
        let report = broken().await;
        let json: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["exit"], 7);
        assert_eq!(json["steps"][0]["expires_in"], 9);
        assert_eq!(json["steps"][0]["milliseconds"], 1.2);
        assert_eq!(json["steps"][2]["verdict"], "skipped");
        let failure = report.failure.unwrap();
        assert_eq!(failure.exit, Exit::Denied);
        assert!(!failure.sentence.contains("gcloud"), "said once: {failure}");
    }
}
