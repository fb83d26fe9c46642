"""Tools of Model Context Protocol servers, as functions in the kernel like any other.

A server is a program of the user's on the host (stdio) or an endpoint (streamable HTTP); the
official client speaks to it, on the host, where its keys are. What a server says is untrusted:

* its descriptions are shown to the model quoted, shortened and attributed (:mod:`.foreign`);
* its schemas are cut down to a bounded tree before anything is validated by them (:mod:`.schema`);
* its results are data, and marked so; its word that a tool only reads is a hint that spares a
  question, and nothing else;
* its instructions, prompts, resources and requests for a model's or a person's answer are not
  taken, and its list of tools is read once, when the session starts: a tool cannot change its
  meaning after it was looked at.

A server that does not start in time is the user's error and ends the session's start; one that
hangs or dies later fails the calls that are under way, each with one line, and is started again
for the next call, three times in a session at most.
"""
