//! The attribute and derive macros of Panoply.
