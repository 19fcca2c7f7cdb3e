//! Places where vectors are compared.

/// Where vectors are compared, ordered from the inside of the device to the outside. Pages travel to this place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Next to the page buffers of a LUN (NDSearch).
    Lun,
    /// At the pins of a chip (DeepStore per chip).
    Chip,
    /// At the end of a channel (DeepStore per channel).
    Channel,
    /// On an FPGA with a private link to the device (SmartSSD).
    Fpga,
    /// On the machine that contains the device.
    Host,
}
