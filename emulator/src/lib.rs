//! Google Cloud Storage and the services that give out its tokens, on loopback.
//!
//! An [`Emulator`] serves on one port, over HTTP/1.1:
//! - the JSON API of Cloud Storage (`/storage/v1/`, `/upload/storage/v1/`, `/download/storage/v1/`) and the XML
//!   API's `/bucket/object`, strict about preconditions, generations, checksums, names, ranges and the mutation
//!   rate;
//! - STS (`POST /v1/token`), which exchanges the projected tokens of a built-in cluster for access tokens that the
//!   object API then demands, and access tokens for ones inside a credential access boundary;
//! - IAM Credentials (`POST /v1/projects/-/serviceAccounts/EMAIL:generateAccessToken`), which gives the tokens of a
//!   service account to whoever may act as it;
//! - the OAuth endpoint that credential files name (`POST /token`), for people's logins and for the keys of service
//!   accounts, whose self-signed tokens the object API takes as they are;
//! - the metadata server's paths (`/computeMetadata/v1/`), which count who asks and hand out the identity of a *node*,
//!   which every bucket refuses, or that of a pod, as GKE's own server does ([`MetadataFlavor`]);
//! - the administrative interface below, which is also the Rust API of [`Admin`].
//!
//! Everything is in memory, and with [`Config::data_dir`] on the disk too. Versions of objects are immutable and share
//! their bytes.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use gcsmount_emulator::{Config, Emulator, MintRequest};
//!
//! let config = Config { buckets: vec!["demo".into()], ..Config::default() };
//! let emulator = Emulator::start(config).await?;
//! emulator.admin().put_object("demo", "hello", "world".into())?;
//! let subject_token = emulator.admin().mint_token(&MintRequest::default());
//! # drop(subject_token);
//! emulator.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What survives
//!
//! With a data directory, buckets and their policies, folders and all versions of objects are in its `journal`. No answer
//! leaves before what it tells of is on the disk, by `fdatasync`; requests that wait together share one. So whatever was
//! acknowledged is there after a kill at any moment. A frame that was being written then is cut off; a journal that is
//! damaged before its end is an error at the start; one of another version is renamed `journal.set-aside-…` and not
//! read. If the disk fails, answers are 503 from then on. Upload sessions, tokens, accounts, keys, faults and counters do
//! not survive: a session that was open is 404 afterwards, and its upload begins anew.
//!
//! # What it leaves out
//!
//! - A call of the storage API that is not served is 501 `notImplemented`, with its method and path, and does nothing;
//!   404 is for what is missing and for what is no API. So it goes with the XML API but for `GET`, `HEAD`, `PUT` and
//!   `DELETE` of objects and `HEAD` of buckets: no lists, no ACLs, no copies, no multipart uploads, no query parameter
//!   beside `generation`, `userProject`, `response-content-type` and `response-content-disposition`, and no signed URLs.
//! - A bucket has its class, versioning, retention, soft delete, requester pays, uniform access, labels and default
//!   event-based hold; a field of its resource that would be forgotten is 501. Whatever location is asked for, it is `US`.
//! - Lists by `matchGlob` or `filter` are refused with 400.
//! - The class of an object is changed by a rewrite alone. `objects.patch` and `objects.update` pass over `storageClass`;
//!   what GCS answers there is not documented.
//! - Scopes bound what a token does, as the discovery document has it for each method. Tokens of the metadata server and
//!   of people's logins have the `cloud-platform` scope, whatever is asked for.
//! - Members and audiences of workload identity pools name the project by its number, 123456789012. Google takes no
//!   project id there; here such a member lets nobody in, and such an audience is refused.
//!
//! # Administration over HTTP
//!
//! Bodies are JSON, in both directions; an empty body is `{}`. Unknown keys are refused with 400, and so are a fault or
//! a latency for a method that does not exist and a fault's status outside 100 to 599.
//!
//! | request | body | effect |
//! |---|---|---|
//! | `POST /_emulator/tokens` | `namespace`, `service_account`, `ttl_seconds`, `audience`, `issuer`, all optional | [`Admin::mint_token`]; answers `token`, `expires_at` |
//! | `GET /_emulator/counters` | | [`Admin::counters`] |
//! | `POST /_emulator/counters/reset` | | [`Admin::reset_counters`] |
//! | `POST /_emulator/buckets` | `name`, `hierarchical` (absent: false) | [`Admin::create_bucket`], [`Admin::create_hierarchical_bucket`] |
//! | `PUT /_emulator/buckets/NAME/settings` | `uniform_access` (absent: true), `requester_pays` (absent: false), `versioning` (absent: false), `default_event_based_hold` (absent: false), `retention_seconds`, `soft_delete_seconds` (absent: none) | [`Admin::set_bucket`] |
//! | `GET /_emulator/buckets/NAME/usage` | | [`Admin::usage`] |
//! | `POST /_emulator/buckets/NAME/grants` | `member`, `role` (`roles/storage.objectAdmin`, …) | [`Admin::grant`] |
//! | `PUT /_emulator/buckets/NAME/grants` | list of `member`, `role` | [`Admin::replace_grants`] |
//! | `POST /_emulator/service_accounts` | `email`, optional list `impersonators` | [`Admin::create_service_account`], [`Admin::grant_impersonation`] |
//! | `POST /_emulator/service_accounts/EMAIL/impersonators` | `member` | [`Admin::grant_impersonation`] |
//! | `DELETE /_emulator/service_accounts/EMAIL/impersonators` | `member` | [`Admin::revoke_impersonation`] |
//! | `POST /_emulator/service_accounts/EMAIL/keys` | | [`Admin::mint_service_account_key`]; answers the file |
//! | `POST /_emulator/service_accounts/EMAIL/keys` | `public` with `id` and `pem` | [`Admin::register_service_account_key`] |
//! | `DELETE /_emulator/service_accounts/EMAIL/keys/ID` | | [`Admin::revoke_service_account_key`] |
//! | `POST /_emulator/logins` | `member` | [`Admin::mint_authorized_user`]; answers the file |
//! | `POST /_emulator/logins/revoke` | `refresh_token` | [`Admin::revoke_refresh_token`] |
//! | `PUT /_emulator/metadata` | `pod` with `namespace` and `service_account`, absent for the node; optional `address` (`IP:PORT`) | [`Admin::set_metadata`], [`Admin::set_metadata_at`] |
//! | `POST /_emulator/faults` | a [`FaultRule`] | [`Admin::add_fault`] |
//! | `DELETE /_emulator/faults` | | [`Admin::clear_faults`] |
//! | `PUT /_emulator/shape` | `latency_ms` with optional `method`; `stream_rate` (0: none); `clock_skew_seconds` | [`Admin::set_latency`], [`Admin::set_stream_rate`], [`Admin::set_clock_skew`] |
//! | `PUT /_emulator/access_tokens` | `ttl_seconds` | [`Admin::set_access_token_ttl`] |
//! | `POST /_emulator/access_tokens/revoke` | | [`Admin::revoke_access_tokens`] |
//! | `POST /_emulator/clock` | `advance_ms` | [`Admin::advance_clock`] |
//!
//! The Retry Test API of Google's storage testbench makes rules of the same kind, for requests that name the test in
//! `x-retry-test-id`: one test of a client's faults runs against both. Instructions are `return-CODE`,
//! `return-reset-connection`, `return-broken-stream`, `return-broken-stream-after-NK` (reads), `return-CODE-after-NK`
//! and `return-broken-stream-final-chunk-after-NB` (uploads), and `stall-for-Ns-after-NK`; methods have the names below,
//! `storage.objects.get` and `storage.objects.insert` with all that follows them. There is no bucket `retry_test`.
//!
//! | request | body | effect |
//! |---|---|---|
//! | `POST /retry_test` | `instructions`: lists of them by method | answers `id` |
//! | `GET /retry_test/ID`, `GET /retry_tests` | | what is left of it, or of all; `completed` once nothing is |
//! | `DELETE /retry_test/ID` | | ends it |
//!
//! # Names of methods
//!
//! Counters, faults and latencies know requests by these names; patterns take `*`. `storage.objects.`: `list`, `get`
//! (the resource), `get.media` (the data), `insert` (media and multipart), `insert.start`, `insert.chunk`,
//! `insert.query`, `insert.cancel` (resumable), `patch`, `update`, `delete`, `compose`, `rewrite`, `copy`, `move`, `restore`.
//! `storage.buckets.`: `list`, `insert`, `get`, `patch`, `delete`, `testIamPermissions`, `getStorageLayout`, `operations.get`.
//! `storage.folders.`: `insert`, `get`, `list`, `delete`, `rename`. Further `storage.batch` (whose calls are
//! counted, and not struck by faults, under their own names), `sts.token`, `oauth2.token`,
//! `iamcredentials.generateAccessToken`, `metadata` and `unknown`. A fault's status is worded as its method words
//! errors: RFC 6749's `error` on the token endpoints, `error.status` on IAM Credentials.
//!
//! # Where it follows GCS to the letter
//!
//! - Errors are JSON with `error.errors[0].reason`, but a media read (`alt=media`) is refused with the bare message
//!   as text, and the XML API answers XML.
//! - An anonymous caller gets 401 `required`, a bad or expired token 401 `authError`, a principal without the
//!   permission 403 `forbidden`. [`Role::ObjectAdmin`] does not contain `storage.buckets.get`.
//! - Replacing an object, by whatever way, needs `storage.objects.delete` beside `storage.objects.create`;
//!   [`Role::ObjectCreator`] replaces nothing. A rename needs `storage.objects.move`.
//! - Any principal may ask which permissions it has on a bucket (`iam/testPermissions`); an answer without
//!   `permissions` means none.
//! - A failed precondition is 412 `conditionNotMet`; on reads a failed not-match is 304. `If-Match` and `If-None-Match`
//!   are preconditions of objects and buckets, with the entity tags that answers tell and with `*`.
//! - Without uniform bucket-level access ([`BucketSettings`]) a federated principal gets 412 for all that it asks of the
//!   bucket, and so does a token inside a credential access boundary.
//! - A bucket whose requester pays answers 400 `required` to whoever names no project.
//! - What is under a temporary or an event-based hold, or younger than the retention period of its bucket, is neither
//!   replaced nor deleted: 403 `objectUnderActiveHold` or `retentionPolicyNotMet`. The release of an event-based hold
//!   begins the period anew. Copies are under no hold.
//! - With versioning a version that is replaced or deleted stays as a noncurrent one, which is listed with
//!   `versions=true`, read and deleted by its generation. With a soft delete policy a version that would be gone stays
//!   for the policy's time, is listed with `softDeleted=true` and can be restored, under a new generation. Buckets have
//!   no such policy unless it is asked for, where GCS gives one of seven days: memory would fill with what was replaced.
//! - An object has the storage class that it is given, else its bucket's; only a rewrite or a copy changes it.
//! - A bucket with a hierarchical namespace needs uniform bucket-level access, has no versioning and stays what it is. An object makes the
//!   folders that it is in, and they stay when it goes; each part of its name has at most 512 bytes. A folder is deleted
//!   when nothing is in it; its rename moves what is in it all at once, and objects keep their generations. Whatever is
//!   in a folder's way is 409. Folders are prefixes of a list where `includeFoldersAsPrefixes` asks for them.
//! - A credential access boundary has at most 10 rules and 2048 characters, each rule for one bucket. A downscoped
//!   token may do what both its principal and the boundary allow, ends with the token it is made of, cannot be
//!   downscoped again, and tells `expires_in` only where that one is a service account's. Conditions are the start of
//!   an object's name, the start of a list's prefix, and `||`; any other expression is refused.
//! - `generateAccessToken` takes a lifetime of at most an hour, and `delegates` without a gap in their chain.
//! - A service account's statement lives at most an hour, names the endpoint as its audience, and is signed with RS256
//!   by a key that is known.
//! - A resumable chunk that leaves a gap is 400, a cancelled session answers 499 and then 410.

mod access;
mod accounts;
mod admin;
mod assertion;
mod batch;
mod body;
mod boundary;
mod call;
mod clock;
mod cluster;
mod config;
mod content;
mod counters;
mod distort;
mod download;
mod error;
mod fault;
mod fields;
mod gate;
mod hierarchy;
mod history;
mod hold;
mod iam;
mod inbound;
mod journal;
mod json;
mod jwt;
mod limit;
mod listing;
mod metadata;
mod multipart;
mod mutation;
mod name;
mod oauth;
mod object;
mod operation;
mod patient;
mod pattern;
mod precondition;
mod principal;
mod query;
mod range;
mod resource;
mod role;
mod route;
mod rsa;
mod scope;
mod server;
mod service;
mod shape;
mod state;
mod store;
mod sts;
mod unserved;
mod upload;
mod xml;

pub use admin::{Admin, Error, ErrorKind};
pub use cluster::MintRequest;
pub use config::{
    Auth, BucketSettings, Config, MutationLimit, ParseAuthError, ParseLimitError, Provider,
    ServiceAccount,
};
pub use counters::Counters;
pub use fault::{FaultAction, FaultRule};
pub use history::{Kept, Usage};
pub use metadata::MetadataFlavor;
pub use role::Role;
pub use server::Emulator;
