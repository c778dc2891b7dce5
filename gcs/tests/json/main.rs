//! The JSON client against a scripted server, and against the emulator.

#![expect(unreachable_pub, reason = "the modules of a test binary share freely")]

mod calls;
mod emulator;
mod identity;
mod network;
mod reads;
mod script;
mod uploads;
