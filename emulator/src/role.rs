//! Roles of Cloud Storage, and the permissions that each contains as Google documents them.

/// Roles that bind principals to a bucket, under the names of the predefined roles of Cloud Storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// `roles/storage.admin`: everything with the bucket and its objects.
    Admin,
    /// `roles/storage.objectAdmin`: everything with objects, nothing with the bucket itself.
    ObjectAdmin,
    /// `roles/storage.objectUser`: reads, lists, creates, changes, renames and deletes objects.
    ObjectUser,
    /// `roles/storage.objectViewer`: reads and lists objects.
    ObjectViewer,
    /// `roles/storage.objectCreator`: creates objects, and cannot replace one.
    ObjectCreator,
    /// `roles/storage.legacyObjectReader`: reads objects.
    ObjectReader,
    /// `roles/storage.legacyObjectOwner`: reads objects and changes their metadata.
    ObjectOwner,
    /// `roles/storage.legacyBucketReader`: reads the bucket's own metadata and lists objects.
    BucketReader,
    /// `roles/storage.legacyBucketWriter`: that, and creates, replaces and deletes objects.
    BucketWriter,
    /// `roles/storage.legacyBucketOwner`: that, and changes the bucket's own metadata.
    BucketOwner,
}

impl Role {
    const ALL: [Self; 10] = [
        Self::Admin,
        Self::ObjectAdmin,
        Self::ObjectUser,
        Self::ObjectViewer,
        Self::ObjectCreator,
        Self::ObjectReader,
        Self::ObjectOwner,
        Self::BucketReader,
        Self::BucketWriter,
        Self::BucketOwner,
    ];

    /// The role's name in an IAM policy.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "roles/storage.admin",
            Self::ObjectAdmin => "roles/storage.objectAdmin",
            Self::ObjectUser => "roles/storage.objectUser",
            Self::ObjectViewer => "roles/storage.objectViewer",
            Self::ObjectCreator => "roles/storage.objectCreator",
            Self::ObjectReader => "roles/storage.legacyObjectReader",
            Self::ObjectOwner => "roles/storage.legacyObjectOwner",
            Self::BucketReader => "roles/storage.legacyBucketReader",
            Self::BucketWriter => "roles/storage.legacyBucketWriter",
            Self::BucketOwner => "roles/storage.legacyBucketOwner",
        }
    }

    /// The role of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    /// What Google's page of IAM roles for Cloud Storage lists, as far as it is known here.
    fn permissions(self) -> &'static [Permission] {
        use Permission::{
            BucketGet, BucketGetPolicy, BucketSetPolicy, BucketUpdate, Create, Delete,
            FolderCreate, FolderDelete, FolderGet, FolderList, FolderRename, Get, GetPolicy, List,
            Move, Restore, SetPolicy, Update,
        };
        match self {
            Self::Admin => Permission::ALL,
            Self::ObjectAdmin => &[
                Get,
                List,
                Create,
                Update,
                Delete,
                Move,
                Restore,
                GetPolicy,
                SetPolicy,
                FolderCreate,
                FolderDelete,
                FolderGet,
                FolderList,
                FolderRename,
            ],
            Self::ObjectUser => &[
                Get,
                List,
                Create,
                Update,
                Delete,
                Move,
                Restore,
                FolderCreate,
                FolderDelete,
                FolderGet,
                FolderList,
                FolderRename,
            ],
            Self::ObjectViewer => &[Get, List, FolderGet, FolderList],
            Self::ObjectCreator => &[Create, FolderCreate],
            Self::ObjectReader => &[Get],
            Self::ObjectOwner => &[Get, Update, GetPolicy, SetPolicy],
            Self::BucketReader => &[BucketGet, List],
            Self::BucketWriter => &[BucketGet, List, Create, Delete],
            Self::BucketOwner => &[
                BucketGet,
                BucketUpdate,
                BucketGetPolicy,
                BucketSetPolicy,
                List,
                Create,
                Delete,
            ],
        }
    }

    pub(crate) fn grants(self, permission: Permission) -> bool {
        self.permissions().contains(&permission)
    }
}

/// Declares the permissions once, with their public names.
macro_rules! permissions {
    ($($variant:ident => $name:literal,)*) => {
        /// What an operation needs, or what a caller may ask whether he has it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Permission { $($variant,)* }

        impl Permission {
            const ALL: &'static [Self] = &[$(Self::$variant,)*];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

permissions! {
    Get => "storage.objects.get",
    List => "storage.objects.list",
    Create => "storage.objects.create",
    Update => "storage.objects.update",
    Delete => "storage.objects.delete",
    Move => "storage.objects.move",
    Restore => "storage.objects.restore",
    GetPolicy => "storage.objects.getIamPolicy",
    SetPolicy => "storage.objects.setIamPolicy",
    FolderCreate => "storage.folders.create",
    FolderDelete => "storage.folders.delete",
    FolderGet => "storage.folders.get",
    FolderList => "storage.folders.list",
    FolderRename => "storage.folders.rename",
    BucketGet => "storage.buckets.get",
    BucketUpdate => "storage.buckets.update",
    BucketDelete => "storage.buckets.delete",
    BucketGetPolicy => "storage.buckets.getIamPolicy",
    BucketSetPolicy => "storage.buckets.setIamPolicy",
}

impl Permission {
    /// The permission of that name, where it is one that roles here grant.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|permission| permission.name() == name)
    }

    /// The word for what it is about.
    pub(crate) fn resource(self) -> &'static str {
        match self {
            Self::Get
            | Self::Update
            | Self::Delete
            | Self::Move
            | Self::Restore
            | Self::GetPolicy
            | Self::SetPolicy => "object",
            Self::FolderDelete | Self::FolderGet | Self::FolderRename => "folder",
            Self::List
            | Self::Create
            | Self::FolderCreate
            | Self::FolderList
            | Self::BucketGet
            | Self::BucketUpdate
            | Self::BucketDelete
            | Self::BucketGetPolicy
            | Self::BucketSetPolicy => "bucket",
        }
    }
}

/// What a permission is asked for: a condition of an access boundary looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource<'a> {
    Bucket,
    Object(&'a str),
    Folder(&'a str),
    /// The objects whose names begin with this.
    Listing(&'a str),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_grant_as_the_predefined_ones_do() {
        use Role as R;
        for (permission, roles) in [
            (
                Permission::Get,
                &[
                    R::Admin,
                    R::ObjectAdmin,
                    R::ObjectUser,
                    R::ObjectViewer,
                    R::ObjectReader,
                    R::ObjectOwner,
                ][..],
            ),
            (
                Permission::List,
                &[
                    R::Admin,
                    R::ObjectAdmin,
                    R::ObjectUser,
                    R::ObjectViewer,
                    R::BucketReader,
                    R::BucketWriter,
                    R::BucketOwner,
                ],
            ),
            (
                Permission::Create,
                &[
                    R::Admin,
                    R::ObjectAdmin,
                    R::ObjectUser,
                    R::ObjectCreator,
                    R::BucketWriter,
                    R::BucketOwner,
                ],
            ),
            (
                Permission::Update,
                &[R::Admin, R::ObjectAdmin, R::ObjectUser, R::ObjectOwner],
            ),
            (
                Permission::Delete,
                &[
                    R::Admin,
                    R::ObjectAdmin,
                    R::ObjectUser,
                    R::BucketWriter,
                    R::BucketOwner,
                ],
            ),
            (Permission::Move, &[R::Admin, R::ObjectAdmin, R::ObjectUser]),
            (
                Permission::FolderRename,
                &[R::Admin, R::ObjectAdmin, R::ObjectUser],
            ),
            (
                Permission::FolderList,
                &[R::Admin, R::ObjectAdmin, R::ObjectUser, R::ObjectViewer],
            ),
            (
                Permission::FolderCreate,
                &[R::Admin, R::ObjectAdmin, R::ObjectUser, R::ObjectCreator],
            ),
            (
                Permission::BucketGet,
                &[R::Admin, R::BucketReader, R::BucketWriter, R::BucketOwner],
            ),
            (Permission::BucketUpdate, &[R::Admin, R::BucketOwner]),
            (Permission::BucketDelete, &[R::Admin]),
        ] {
            let granting: Vec<Role> = Role::ALL
                .into_iter()
                .filter(|role| role.grants(permission))
                .collect();
            assert_eq!(granting, roles, "{}", permission.name());
        }
    }

    #[test]
    fn names_lead_back() {
        for role in Role::ALL {
            assert_eq!(Role::from_name(role.name()), Some(role));
        }
        for permission in Permission::ALL {
            assert_eq!(Permission::from_name(permission.name()), Some(*permission));
        }
        assert_eq!(Role::from_name("roles/owner"), None);
        assert_eq!(Permission::from_name("storage.objects"), None);
    }
}
