//! The classic text protocol, as transcripts.
//!
//! Where memcached 1.6.45 and 1.6.18 differ, these are the answers of 1.6.45. Each test is a feature of the protocol.

mod wire;

use wire::plays;

#[test]
fn what_was_set_is_got() {
    plays(
        "> set a 5 0 3
         > one
         < STORED
         > get a
         < VALUE a 5 3
         < one
         < END
         > get b
         < END
         > get a b a
         < VALUE a 5 3
         < one
         < VALUE a 5 3
         < one
         < END
         > set empty 0 0 0
         >
         < STORED
         > get empty
         < VALUE empty 0 0
         <
         < END
         > delete a
         < DELETED
         > delete a
         < NOT_FOUND
         > set binary 4294967295 0 6
         > a\\r\\n\\x00\\xff.
         < STORED
         > get binary
         < VALUE binary 4294967295 6
         < a\\r\\n\\x00\\xff.
         < END",
    );
}
