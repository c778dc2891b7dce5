//! What a request does, under the name that counters, faults and latencies know it by.

/// Declares the operations once, with their public names.
macro_rules! operations {
    ($($variant:ident => $name:literal,)*) => {
        /// An API method, a token endpoint or a metadata server path.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Operation { $($variant,)* }

        impl Operation {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

operations! {
    BucketsList => "storage.buckets.list",
    BucketsInsert => "storage.buckets.insert",
    BucketsGet => "storage.buckets.get",
    BucketsPatch => "storage.buckets.patch",
    BucketsDelete => "storage.buckets.delete",
    BucketsTestPermissions => "storage.buckets.testIamPermissions",
    StorageLayout => "storage.buckets.getStorageLayout",
    ObjectsList => "storage.objects.list",
    ObjectsGet => "storage.objects.get",
    ObjectsMedia => "storage.objects.get.media",
    ObjectsInsert => "storage.objects.insert",
    ObjectsInsertStart => "storage.objects.insert.start",
    ObjectsInsertChunk => "storage.objects.insert.chunk",
    ObjectsInsertQuery => "storage.objects.insert.query",
    ObjectsInsertCancel => "storage.objects.insert.cancel",
    ObjectsPatch => "storage.objects.patch",
    ObjectsUpdate => "storage.objects.update",
    ObjectsDelete => "storage.objects.delete",
    ObjectsCompose => "storage.objects.compose",
    ObjectsRewrite => "storage.objects.rewrite",
    ObjectsCopy => "storage.objects.copy",
    ObjectsMove => "storage.objects.move",
    ObjectsRestore => "storage.objects.restore",
    FoldersInsert => "storage.folders.insert",
    FoldersGet => "storage.folders.get",
    FoldersList => "storage.folders.list",
    FoldersDelete => "storage.folders.delete",
    FoldersRename => "storage.folders.rename",
    OperationsGet => "storage.buckets.operations.get",
    Batch => "storage.batch",
    StsToken => "sts.token",
    OauthToken => "oauth2.token",
    GenerateAccessToken => "iamcredentials.generateAccessToken",
    Metadata => "metadata",
    Admin => "emulator",
    Unknown => "unknown",
}

impl Operation {
    /// Whether the body that matters comes from the caller: rates and body faults apply to that side.
    pub(crate) fn is_upload(self) -> bool {
        matches!(self, Self::ObjectsInsert | Self::ObjectsInsertChunk)
    }
}
