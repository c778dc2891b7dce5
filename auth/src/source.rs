//! Where subject tokens come from. A source is asked anew for each exchange, keeps nothing, and
//! says what it is without saying what it holds.

use std::fmt;

use async_trait::async_trait;

use crate::error::Error;
use crate::secret::SubjectToken;

pub mod executable;
pub(crate) mod file;
mod format;
mod pushed;
pub(crate) mod text_file;
mod url;

pub use executable::ExecutableSource;
pub use file::FileSource;
pub use format::Format;
pub use pushed::Pushed;
pub use url::UrlSource;

/// One place that subject tokens come from.
#[async_trait]
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// The subject token of this moment. The caller sets a deadline; dropping the future cancels.
    ///
    /// # Errors
    /// [`Kind::Source`](crate::error::Kind::Source) with a sentence that names the place.
    async fn subject_token(&self) -> Result<SubjectToken, Error>;

    /// The place in a few words for messages and status, such as a path. Never a token.
    fn describe(&self) -> String;

    /// What makes this source another one: two sources with the same key deliver the tokens of one
    /// identity. The place, unless that does not tell.
    fn key(&self) -> String {
        self.describe()
    }
}
