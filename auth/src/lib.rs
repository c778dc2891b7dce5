//! gcsmount-auth: token broker: subject token to access token, kept fresh.
