"""Real servers, a simulated world and fixtures: shipped, for the tests of those who use Headgate too."""
