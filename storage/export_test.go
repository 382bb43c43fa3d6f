package storage

// Endurance is endurance, for tests.
const Endurance = endurance
