//! Parameters, FLOP and bytes in closed form.
