//! Service accounts: which there are, who may act as them, and the public keys that they sign with.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::RwLock;

use crate::error::{ApiError, Kind};
use crate::principal::{Principal, is_address};
use crate::rsa::PublicKey;

#[derive(Debug, Default)]
struct Account {
    /// Members with `roles/iam.serviceAccountTokenCreator` or `roles/iam.workloadIdentityUser` on the account: both
    /// contain `iam.serviceAccounts.getAccessToken`.
    impersonators: BTreeSet<String>,
    /// By key id.
    keys: BTreeMap<String, PublicKey>,
}

/// The service accounts of an emulator, by address.
#[derive(Debug, Default)]
pub(crate) struct Accounts(RwLock<BTreeMap<String, Account>>);

impl Accounts {
    pub(crate) fn create(&self, email: &str) -> Result<(), ApiError> {
        if !is_address(email) {
            return Err(ApiError::invalid(
                "The address of a service account must have the form NAME@PROJECT.iam.gserviceaccount.com.",
            ));
        }
        let mut accounts = self.0.write();
        if accounts.contains_key(email) {
            let message = format!("Service account {email} already exists.");
            return Err(ApiError::new(Kind::Conflict, message));
        }
        accounts.insert(email.to_owned(), Account::default());
        Ok(())
    }

    pub(crate) fn knows(&self, email: &str) -> bool {
        self.0.read().contains_key(email)
    }

    /// Lets a member act as the account.
    pub(crate) fn allow(&self, email: &str, member: &str) -> Result<(), ApiError> {
        self.change(email, |account| {
            account.impersonators.insert(member.to_owned());
        })
    }

    /// Takes that from a member.
    pub(crate) fn forbid(&self, email: &str, member: &str) -> Result<(), ApiError> {
        self.change(email, |account| {
            account.impersonators.remove(member);
        })
    }

    pub(crate) fn may_impersonate(&self, principal: &Principal, email: &str) -> bool {
        let accounts = self.0.read();
        let members = accounts.get(email).map(|account| &account.impersonators);
        members.is_some_and(|members| members.iter().any(|member| principal.is_member(member)))
    }

    /// Makes signatures of `key` those of the account, under an id that tokens may name.
    pub(crate) fn add_key(&self, email: &str, id: &str, key: PublicKey) -> Result<(), ApiError> {
        self.change(email, |account| {
            account.keys.insert(id.to_owned(), key);
        })
    }

    pub(crate) fn remove_key(&self, email: &str, id: &str) -> Result<(), ApiError> {
        let mut known = false;
        self.change(email, |account| known = account.keys.remove(id).is_some())?;
        let message = || format!("Service account key {id} does not exist.");
        known
            .then_some(())
            .ok_or_else(|| ApiError::new(Kind::NothingHere, message()))
    }

    /// The key of that id, or every key of the account where a token names none.
    pub(crate) fn keys(&self, email: &str, id: Option<&str>) -> Vec<PublicKey> {
        let accounts = self.0.read();
        let keys = accounts.get(email).map(|account| account.keys.iter());
        keys.into_iter()
            .flatten()
            .filter(|(known, _)| id.is_none_or(|id| id == *known))
            .map(|(_, key)| key.clone())
            .collect()
    }

    fn change(&self, email: &str, work: impl FnOnce(&mut Account)) -> Result<(), ApiError> {
        let mut accounts = self.0.write();
        let account = accounts.get_mut(email).ok_or_else(|| unknown(email))?;
        work(account);
        Ok(())
    }
}

/// What Google says of an address that no service account has.
pub(crate) fn unknown(email: &str) -> ApiError {
    ApiError::new(
        Kind::NothingHere,
        format!("Not found; Gaia id not found for email {email}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMAIL: &str = "robot@demo.iam.gserviceaccount.com";

    #[test]
    fn accounts_are_made_once_and_let_in_whom_they_are_told() {
        let accounts = Accounts::default();
        let person = Principal::User("a@b.example".into());
        assert_eq!(
            accounts.allow(EMAIL, "user:a@b.example").unwrap_err().kind,
            Kind::NothingHere
        );
        accounts.create(EMAIL).unwrap();
        assert_eq!(accounts.create(EMAIL).unwrap_err().kind, Kind::Conflict);
        assert_eq!(accounts.create("a b").unwrap_err().kind, Kind::Invalid);
        assert!(accounts.knows(EMAIL) && !accounts.may_impersonate(&person, EMAIL));
        accounts.allow(EMAIL, "user:a@b.example").unwrap();
        assert!(accounts.may_impersonate(&person, EMAIL));
        assert!(!accounts.may_impersonate(&Principal::Node, EMAIL));
        accounts.forbid(EMAIL, "user:a@b.example").unwrap();
        assert!(!accounts.may_impersonate(&person, EMAIL));
    }
}
