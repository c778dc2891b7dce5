//! The mount options of a pod: sorted into flags, configuration keys, the driver's own and the kernel's, and judged.
//! The wire does not tell who added an option, so none may weaken the identity: an option may choose an audience or a
//! service account to impersonate, never a source, a key file or a token URL, and an endpoint only with TLS.
//!
//! The grammar is the stock sidecar's. An option with `:`, without `=` and without `https` is a key of gcsfuse's
//! configuration file and, behind its last `:`, a value; any other is `flag` or `flag=value`. One rule is wider:
//! `gcs-connection:custom-endpoint:` begins a key whatever follows, which a stock sidecar would take for a flag.

mod grammar;
mod internal;
mod rules;

use std::collections::BTreeMap;
use std::fmt;

use grammar::Spelled;
pub(crate) use grammar::parse_bool;
pub use internal::{Internal, Medium};

/// Mount options, sorted and judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// `flag[=value]`, in the order given; a flag without a value is `None`. Only a flag that takes a list has several
    /// values.
    pub flags: BTreeMap<String, Vec<Option<String>>>,
    /// Keys of gcsfuse's configuration file, nested by `:`, with their values. In lower case, since gcsfuse reads them in
    /// any.
    pub config: BTreeMap<String, String>,
    /// What the driver tells the sidecar; anybody may have written it.
    pub internal: Internal,
    /// Options of the kernel such as `ro` and `noexec`, which the driver used for mount(2), in the order given.
    pub kernel: Vec<String>,
}

/// What the operator of the sidecar, not the pod, allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Endpoints without TLS, as tests use them.
    pub allow_endpoints: bool,
}

/// An option that cannot be obeyed. As text it is a sentence that names the option and says how to mend it; values,
/// which may be private, are not repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The option's name, without its value.
    pub option: String,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The sidecar sets it; a pod cannot.
    Reserved,
    /// It would choose the source of the identity.
    Identity,
    /// An endpoint without TLS.
    Endpoint,
    /// Given twice with values that differ.
    Conflict,
    /// Not an option, or not a value of it; what was expected.
    Malformed(&'static str),
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mount option {} ", self.option)?;
        match self.fault {
            Fault::Reserved => f.write_str("is the sidecar's to set: remove it from the volume"),
            Fault::Identity => f.write_str(
                "would choose where the identity comes from, which no mount option can: remove it from the volume, \
                 and give the pod the service account, token volume or credential configuration that it needs",
            ),
            Fault::Endpoint => f.write_str(
                "names an endpoint without TLS: let it begin with https://, or have the sidecar's own flags or \
                 environment allow it",
            ),
            Fault::Conflict => f.write_str(
                "is given twice with different values: keep one; volume attributes become mount options too",
            ),
            Fault::Malformed(expected) => write!(f, "cannot be understood: expected {expected}"),
        }
    }
}

impl std::error::Error for Mistake {}

impl Options {
    /// Sorts and judges `options`, as they came with the descriptor.
    ///
    /// # Errors
    /// Every mistake there is; nothing is obeyed in part.
    pub fn parse(options: &[String], policy: Policy) -> Result<Self, Vec<Mistake>> {
        let mut sorted = Self::default();
        let mut given = BTreeMap::new();
        let mut mistakes = Vec::new();
        for option in options {
            let taken = grammar::split(option)
                .and_then(|spelled| sorted.take(&spelled, policy, &mut given));
            if let Err(fault) = taken {
                mistakes.push(Mistake {
                    option: grammar::shown(option),
                    fault,
                });
            }
        }
        mistakes.extend(sorted.contradictions());
        if mistakes.is_empty() {
            Ok(sorted)
        } else {
            Err(mistakes)
        }
    }

    /// Judges one option and puts it where it belongs. `given` has the values so far by canonical name, since one
    /// setting may be spelled in several ways.
    fn take(
        &mut self,
        option: &Spelled<'_>,
        policy: Policy,
        given: &mut BTreeMap<String, String>,
    ) -> Result<(), Fault> {
        if let Some(words) = rules::kernel_words(option)? {
            for word in words {
                if !self.kernel.iter().any(|known| known == word) {
                    self.kernel.push(word.to_owned());
                }
            }
            return Ok(());
        }
        rules::judge(option, policy)?;
        let value = option.value.unwrap_or("true");
        if rules::is_list(option) {
            self.keep(option);
            return Ok(());
        }
        match given.insert(option.canonical(), value.to_owned()) {
            Some(before) if before != value => return Err(Fault::Conflict),
            Some(_) => return Ok(()),
            None => {}
        }
        if !self.internal.take(option)? {
            self.keep(option);
        }
        Ok(())
    }

    fn keep(&mut self, option: &Spelled<'_>) {
        let value = option.value.map(str::to_owned);
        if option.is_key {
            self.config
                .insert(option.name.to_ascii_lowercase(), value.unwrap_or_default());
        } else {
            self.flags
                .entry(option.name.to_owned())
                .or_default()
                .push(value);
        }
    }

    /// Mistakes that no option makes alone.
    fn contradictions(&self) -> Vec<Mistake> {
        let conflict = |option: &str| Mistake {
            option: option.to_owned(),
            fault: Fault::Conflict,
        };
        let differs = |flag: &str, internal: &Option<String>| match (self.flags.get(flag), internal)
        {
            (Some(values), Some(_)) => values.iter().any(|value| value != internal),
            _ => false,
        };
        let mut found: Vec<_> = rules::OPPOSITES
            .into_iter()
            .filter(|pair| {
                pair.iter()
                    .all(|word| self.kernel.iter().any(|known| known == word))
            })
            .map(|[word, _]| conflict(word))
            .collect();
        if differs("identity-pool", &self.internal.identity_pool) {
            found.push(conflict("identity-pool"));
        }
        if differs("identity-provider", &self.internal.identity_provider) {
            found.push(conflict("identity-provider"));
        }
        found
    }
}
