"""Real servers, a simulated world and fixtures: shipped, for the tests of Headgate's users too."""
