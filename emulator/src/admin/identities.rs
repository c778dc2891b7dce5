//! Identities beside the built-in cluster's: service accounts, their keys, people's logins, and whom the metadata
//! server answers for.

use std::net::SocketAddr;

use serde_json::json;

use super::{Admin, Error};
use crate::config::ServiceAccount;
use crate::error::{ApiError, Kind};
use crate::metadata::MetadataFlavor;
use crate::oauth::login::{Login, token_uri};
use crate::principal::Principal;
use crate::rsa::{EMULATOR_KEY, PublicKey};

impl Admin {
    /// Creates a service account that nobody may act as yet. Buckets know it as the member `serviceAccount:EMAIL`.
    ///
    /// # Errors
    /// The address is none, or taken.
    pub fn create_service_account(&self, email: &str) -> Result<(), Error> {
        let created = self.state.accounts.create(email);
        created.map_err(|error| Error::new(email, &error))
    }

    /// Lets a member act as a service account, as `roles/iam.serviceAccountTokenCreator` and
    /// `roles/iam.workloadIdentityUser` do. Members are those of [`Self::grant`].
    ///
    /// # Errors
    /// The service account does not exist.
    pub fn grant_impersonation(&self, email: &str, member: &str) -> Result<(), Error> {
        let allowed = self.state.accounts.allow(email, member);
        allowed.map_err(|error| Error::new(email, &error))
    }

    /// Takes that from a member. Tokens that were issued stay good.
    ///
    /// # Errors
    /// The service account does not exist.
    pub fn revoke_impersonation(&self, email: &str, member: &str) -> Result<(), Error> {
        let forbidden = self.state.accounts.forbid(email, member);
        forbidden.map_err(|error| Error::new(email, &error))
    }

    /// Creates what the configuration describes.
    pub(crate) fn set_up(&self, account: &ServiceAccount) -> Result<(), Error> {
        self.create_service_account(&account.email)?;
        let mut members = account.impersonators.iter();
        members.try_for_each(|member| self.grant_impersonation(&account.email, member))
    }

    /// Makes a key of a service account and returns its file: the complete JSON that Google's libraries read, with
    /// `/token` of the emulator at `endpoint` as its `token_uri`. Each has an id of its own; the RSA key in it is
    /// the same in all, is no secret, and opens nothing but emulators.
    ///
    /// # Errors
    /// The service account does not exist.
    pub fn mint_service_account_key(&self, email: &str, endpoint: &str) -> Result<String, Error> {
        let id = self.state.signer.nonce();
        let accounts = &self.state.accounts;
        let added = accounts.add_key(email, &id, PublicKey::of_emulator());
        added.map_err(|error| Error::new(email, &error))?;
        let file = json!({
            "type": "service_account",
            "project_id": "demo",
            "private_key_id": id,
            "private_key": EMULATOR_KEY,
            "client_email": email,
            "client_id": "100000000000000000001",
            "auth_uri": "https://accounts.google.com/o/oauth2/auth",
            "token_uri": token_uri(endpoint),
            "universe_domain": "googleapis.com",
        });
        Ok(file.to_string())
    }

    /// Makes signatures of a key of the caller's own those of a service account. `public_key` is the RSA key in PEM,
    /// as `openssl pkey -pubout` prints it, and `id` what tokens name it by.
    ///
    /// # Errors
    /// The service account does not exist, or the text is no such key.
    pub fn register_service_account_key(
        &self,
        email: &str,
        id: &str,
        public_key: &str,
    ) -> Result<(), Error> {
        let key = PublicKey::from_pem(public_key);
        let added = key
            .ok_or_else(|| ApiError::invalid("a public key is an RSA key in PEM"))
            .and_then(|key| self.state.accounts.add_key(email, id, key));
        added.map_err(|error| Error::new(email, &error))
    }

    /// Deletes a key of a service account. What it signed is refused from now on; access tokens that were had for it
    /// stay good.
    ///
    /// # Errors
    /// The service account or the key does not exist.
    pub fn revoke_service_account_key(&self, email: &str, id: &str) -> Result<(), Error> {
        let removed = self.state.accounts.remove_key(email, id);
        removed.map_err(|error| Error::new(email, &error))
    }

    /// Logs a member in and returns the file that `gcloud auth application-default login` leaves: the complete
    /// `authorized_user` JSON, with `/token` of the emulator at `endpoint` as its `token_uri`.
    ///
    /// # Errors
    /// The member is neither `user:EMAIL` nor another that stands for one principal.
    pub fn mint_authorized_user(&self, member: &str, endpoint: &str) -> Result<String, Error> {
        let principal = Principal::from_member(member).ok_or_else(|| {
            let message = "a login is that of user:EMAIL, serviceAccount:EMAIL or one principal://";
            Error::new(member, &ApiError::invalid(message))
        })?;
        let nonce = || self.state.signer.nonce();
        let refresh_token = format!("1//{}", nonce());
        let login = Login {
            client_id: format!("{}.apps.googleusercontent.com", nonce()),
            client_secret: format!("GOCSPX-{}", nonce()),
            principal,
        };
        let file = json!({
            "type": "authorized_user",
            "client_id": login.client_id,
            "client_secret": login.client_secret,
            "refresh_token": refresh_token,
            "token_uri": token_uri(endpoint),
            "universe_domain": "googleapis.com",
        });
        self.state.logins.add(refresh_token, login);
        Ok(file.to_string())
    }

    /// Revokes a login. Access tokens that were had for it stay good.
    ///
    /// # Errors
    /// There is no such refresh token.
    pub fn revoke_refresh_token(&self, refresh_token: &str) -> Result<(), Error> {
        if self.state.logins.revoke(refresh_token) {
            return Ok(());
        }
        let error = ApiError::new(Kind::NothingHere, "nobody has such a login");
        Err(Error::new("refresh token", &error))
    }

    /// Sets whom the metadata server's paths answer for, at every address.
    pub fn set_metadata(&self, flavor: MetadataFlavor) {
        self.state.metadata.set(None, flavor);
    }

    /// Sets whom the metadata server's paths answer for at one of the addresses that are listened on
    /// ([`Emulator::local_addrs`](crate::Emulator::local_addrs)), so that a node's and a pod's server stand side by
    /// side.
    pub fn set_metadata_at(&self, local: SocketAddr, flavor: MetadataFlavor) {
        self.state.metadata.set(Some(local), flavor);
    }
}
