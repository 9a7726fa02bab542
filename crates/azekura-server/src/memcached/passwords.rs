//! Users and their passwords, read from a text of one line for each user.
//!
//! A comparison takes the same time wherever two texts of one length differ, and goes through the whole table, so the time
//! of an answer does not reveal how much of a guess was right. It knows no file and no connection.

/// Users and their passwords.
#[derive(Clone, Default)]
pub struct Passwords(Vec<(Vec<u8>, Vec<u8>)>);

impl Passwords {
    /// The table of a text: a line for each user, `name:password`. Empty lines are passed over. The error is what is wrong: a
    /// line, counted from 1, without a colon, without a name or a password, or of a user who has one already; or no line at all.
    pub fn parse(text: &[u8]) -> std::result::Result<Self, String> {
        let mut table: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let mut parts = line.splitn(2, |byte| *byte == b':');
            match (parts.next(), parts.next()) {
                (Some(user), Some(password)) if !user.is_empty() && !password.is_empty() => {
                    if table.iter().any(|(known, _)| known == user) {
                        return Err(format!("line {}, of a user who has one", index + 1));
                    }
                    table.push((user.to_vec(), password.to_vec()));
                }
                _ => return Err(format!("line {}", index + 1)),
            }
        }
        if table.is_empty() {
            return Err("no user".to_owned());
        }
        Ok(Self(table))
    }

    /// Whether the user has this password. The time it takes reveals the table's size and lengths, no contents.
    pub fn admits(&self, user: &[u8], password: &[u8]) -> bool {
        let mut admitted = false;
        for (known, secret) in &self.0 {
            admitted |= equal(known, user) & equal(secret, password);
        }
        admitted
    }
}

/// Compares in a time that does not depend on where two texts of one length differ.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

impl std::fmt::Debug for Passwords {
    /// The number of users, and nothing else.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Passwords({} users)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_passwords_admits_its_users_and_nobody_else() {
        let table = Passwords::parse(b"anna:a:b\r\n\nbert:c d\n").unwrap();
        assert!(table.admits(b"anna", b"a:b") && table.admits(b"bert", b"c d"));
        assert!(
            !table.admits(b"anna", b"a")
                && !table.admits(b"", b"")
                && !table.admits(b"bert", b"a:b")
        );
        let refused = |text: &[u8]| Passwords::parse(text).unwrap_err();
        assert_eq!(refused(b"anna:a\nbert\n"), "line 2");
        assert_eq!(refused(b":a\n"), "line 1");
        assert_eq!(refused(b"anna:\n"), "line 1");
        assert_eq!(refused(b"a:b\n\na:c\n"), "line 3, of a user who has one");
        assert_eq!(refused(b"\n"), "no user");
        assert_eq!(format!("{table:?}"), "Passwords(2 users)");
    }
}
