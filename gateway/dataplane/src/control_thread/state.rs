//! What a data plane keeps for the control planes to come, and for a newer data plane.

use crate::control::{MAX_BLOB, Malformed, Settings};
use crate::policy::Policy;

/// What outlives a data plane beside its readers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControlState {
    /// How many control planes have attached.
    pub attachments: u32,
    /// The body of the last `settings`; empty if none came.
    pub settings: Vec<u8>,
    /// What was given to `remember`, and each `mark` since.
    pub blob: Vec<u8>,
}

impl ControlState {
    /// What the settings mean, if there are any.
    pub fn policy(&self) -> Result<Option<Policy>, Malformed> {
        if self.settings.is_empty() {
            return Ok(None);
        }
        Settings::decode(&self.settings).map(|settings| Some(Policy::new(settings)))
    }

    /// Add a mark to what was given to `remember`; not if nothing was, or there is no room.
    pub fn add(&mut self, mark: &[u8]) {
        if !self.blob.is_empty() && self.blob.len() + mark.len() <= MAX_BLOB {
            self.blob.extend_from_slice(mark);
        }
    }
}
