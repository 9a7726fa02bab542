//! Findings of checks and scrubs, as JSON has them, and what can be done about them.
//! Promises: its description names its device, and offset and object where it has them.
//! It does not know how it was found.

use azekura::object::Finding;
use serde_json::{Value, json};

use super::place::Place;

/// A finding as JSON has it.
pub(crate) fn described(finding: &Finding) -> Value {
    json!({
        "device": finding.device.display().to_string(),
        "offset": finding.offset,
        "object": finding.object.map(|id| id.to_string()),
        "what": finding.what,
    })
}

/// What can be done about damage: of objects alone, or of what a store relies on, too.
pub(crate) fn remedy(place: &Place, is_of_objects: bool) -> String {
    if is_of_objects {
        return "put these objects again from a copy, or remove them: no value can be repaired"
            .into();
    }
    let data = place
        .data()
        .map_or_else(String::new, |data| format!(" --data {}", data.display()));
    let store = place.path().display();
    format!("run `azekura object repair {store}{data}`, which works in place: copy it first")
}
