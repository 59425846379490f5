//===- CaseParser.cpp - Reader of the case notation -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A hand-written scanner and a flat statement parser. Device and stream of a
// statement of a `proc` are known only when all its threads have been read, so
// statements are kept raw until the variant ends.
//
//===----------------------------------------------------------------------===//

#include "concord/order/Case.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <unordered_map>

namespace concord::order {

std::string_view toString(Verdict verdict) {
  switch (verdict) {
  case Verdict::Clean:
    return "clean";
  case Verdict::Race:
    return "race";
  case Verdict::DeadlockSome:
    return "deadlock(some)";
  case Verdict::DeadlockAlways:
    return "deadlock(always)";
  case Verdict::Mismatch:
    return "mismatch";
  case Verdict::DeadlockUnknown:
    return "deadlock";
  case Verdict::NotProven:
    return "not proven";
  }
  return "?";
}

namespace {

constexpr size_t kMaxName = 200;
constexpr uint32_t kMaxDomains = 100000;
constexpr uint32_t kMaxMembers = 65536;
constexpr uint32_t kMaxVariants = 10000;

struct Fault {
  CaseError error;
};

/// Position in the text; skips blanks and comments.
class Scanner {
public:
  explicit Scanner(std::string_view text) : text(text) {}

  uint32_t line = 1;
  uint32_t column() const { return uint32_t(pos - lineStart) + 1; }

  [[noreturn]] void fail(std::string message) const {
    throw Fault{{line, column(), std::move(message)}};
  }

  bool atEnd() const { return pos >= text.size(); }
  char peek() const { return pos < text.size() ? text[pos] : '\0'; }

  void skipBlanks() { // within the line
    while (!atEnd() && peek() != '\n') {
      char c = peek();
      if (c == '#') {
        while (!atEnd() && peek() != '\n')
          ++pos;
        return;
      }
      if (c != ' ' && c != '\t' && c != '\r')
        return;
      ++pos;
    }
  }
  void skipSpace() { // over lines
    for (;;) {
      skipBlanks();
      if (peek() != '\n' || atEnd())
        return;
      ++pos;
      ++line;
      lineStart = pos;
    }
  }
  bool atLineEnd() {
    skipBlanks();
    return atEnd() || peek() == '\n';
  }
  std::string_view restOfLine() {
    skipBlanks();
    size_t begin = pos;
    while (!atEnd() && peek() != '\n' && peek() != '#')
      ++pos;
    std::string_view rest = text.substr(begin, pos - begin);
    while (!rest.empty() && isBlank(rest.back()))
      rest.remove_suffix(1);
    return rest;
  }
  bool accept(std::string_view token) {
    if (text.substr(pos, token.size()) != token)
      return false;
    pos += token.size();
    return true;
  }
  static bool isBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
  static bool isWordChar(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '%' ||
           c == '-' || c == '/' || uint8_t(c) >= 0x80;
  }
  std::string_view peekWord() const {
    size_t end = pos;
    while (end < text.size() && isWordChar(text[end]))
      ++end;
    return text.substr(pos, end - pos);
  }
  std::string word(const char *what) {
    std::string_view w = peekWord();
    if (w.empty())
      fail(std::string("expected ") + what);
    if (w.size() > kMaxName)
      fail(std::string(what) + " longer than 200 characters");
    pos += w.size();
    return std::string(w);
  }
  void expect(char c) {
    skipSpace();
    if (atEnd() || peek() != c)
      fail(std::string("expected '") + c + "'");
    ++pos;
  }
  uint64_t number(const char *what, uint64_t max) {
    std::string_view w = peekWord();
    uint64_t value = 0;
    auto [end, ec] = std::from_chars(w.data(), w.data() + w.size(), value);
    if (w.empty() || ec != std::errc() || end != w.data() + w.size() ||
        value > max)
      fail(std::string("expected ") + what + ", a number from 0 to " +
           std::to_string(max));
    pos += w.size();
    return value;
  }
  /// An attribute value: up to ',' or a closing bracket, blanks trimmed.
  std::string value() {
    skipBlanks();
    size_t begin = pos;
    while (!atEnd() && peek() != ',' && peek() != ')' && peek() != '\n' &&
           peek() != '#' && peek() != ';' && peek() != '}')
      ++pos;
    std::string_view v = text.substr(begin, pos - begin);
    while (!v.empty() && isBlank(v.back()))
      v.remove_suffix(1);
    if (v.size() > kMaxName)
      fail("attribute value longer than 200 characters");
    return std::string(v);
  }

private:
  std::string_view text;
  size_t pos = 0, lineStart = 0;
};

class Interner {
public:
  uint32_t operator()(const std::string &name) {
    auto [it, fresh] = ids.try_emplace(name, uint32_t(names.size()));
    if (fresh)
      names.push_back(name);
    return it->second;
  }
  std::vector<std::string> names;

private:
  std::unordered_map<std::string, uint32_t> ids;
};

/// A statement before its device is known.
struct RawStatement {
  Statement stmt;
  Operation op;    // when stmt.kind == Issue
  int64_t at = -1; // the rank after '@'
};
struct RawThread {
  bool isProc = false;
  Rank rank = 0;     // of `rank N`
  std::string owner; // of `proc A`
  std::string name;
  uint32_t line = 0;
  std::vector<RawStatement> body;
};

std::vector<std::string> splitPlus(const std::string &text) {
  std::vector<std::string> out;
  size_t begin = 0;
  while (begin <= text.size()) {
    size_t end = std::min(text.find('+', begin), text.size());
    if (end > begin)
      out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

class Parser {
public:
  Parser(std::string_view text, std::string_view path, CaseFile &file)
      : in(text), path(path), file(file) {
    file.path = std::string(path);
  }

  void run() {
    for (;;) {
      in.skipSpace();
      if (in.atEnd())
        break;
      if (in.accept("---")) {
        finishVariant();
        label = std::string(in.restOfLine());
        continue;
      }
      std::string keyword = in.word("comm, cfg, rank, proc, expect or ---");
      in.skipBlanks();
      if (keyword == "comm")
        parseComm();
      else if (keyword == "cfg")
        parseConfig();
      else if (keyword == "rank" || keyword == "proc")
        parseThread(keyword == "proc");
      else if (keyword == "expect")
        parseExpect();
      else
        in.fail("expected comm, cfg, rank, proc, expect or ---, not '" +
                keyword + "'");
    }
    finishVariant();
    if (file.variants.empty())
      in.fail("no program in this file");
  }

private:
  Scanner in;
  std::string_view path;
  CaseFile &file;

  Config config;
  std::vector<Domain> domains;
  std::unordered_map<std::string, uint32_t> domainIds;
  std::set<uint32_t> usedDomains;
  std::string label;
  std::vector<RawThread> threads;
  std::unordered_map<std::string, uint32_t> threadLines;
  uint32_t opCount = 0;
  Interner streams, events, flags, locks;

  Location here() { return {std::string(path), in.line, in.column()}; }

  static bool isKeyword(std::string_view w) {
    return w == "comm" || w == "cfg" || w == "rank" || w == "proc" ||
           w == "expect";
  }

  void parseComm() {
    std::string name = in.word("a domain name");
    in.skipBlanks();
    if (!in.accept("="))
      in.fail("expected '=' after the domain name");
    Domain domain{name, {}};
    std::set<Rank> seen;
    while (!in.atLineEnd()) {
      Rank rank = Rank(in.number("a member rank", INT32_MAX));
      if (!seen.insert(rank).second)
        in.fail("rank " + std::to_string(rank) + " is twice in domain " + name);
      domain.members.push_back(rank);
      if (domain.members.size() > kMaxMembers)
        in.fail("more than 65536 members");
      in.skipBlanks();
      in.accept(",");
    }
    if (domain.members.empty())
      in.fail("domain " + name + " has no members");
    auto it = domainIds.find(name);
    if (it == domainIds.end()) {
      if (domains.size() >= kMaxDomains)
        in.fail("more than 100000 domains");
      domainIds[name] = uint32_t(domains.size());
      domains.push_back(std::move(domain));
      return;
    }
    if (usedDomains.count(it->second))
      in.fail("domain " + name + " is redefined after its use in this variant");
    domains[it->second] = std::move(domain);
  }

  void parseConfig() {
    while (!in.atLineEnd()) {
      std::string key = in.word("a setting");
      in.skipBlanks();
      if (!in.accept("="))
        in.fail("expected '=' after " + key);
      in.skipBlanks();
      if (key == "K") {
        config.slots = uint32_t(in.number("K", 1000000));
        if (!config.slots)
          in.fail("K is at least 1");
      } else if (key == "buf") {
        config.buffer = in.number("buf", UINT64_MAX);
      } else {
        std::string value = in.word("a value");
        if (key == "order" && value == "none")
          config.order = Config::Order::None;
        else if (key == "order" && value == "launch")
          config.order = Config::Order::Launch;
        else if (key == "order" && value == "serial")
          config.order = Config::Order::Serial;
        else if (key == "group" && value == "indep")
          config.group = Config::Profile::Indep;
        else if (key == "group" && value == "inorder")
          config.group = Config::Profile::InOrder;
        else if (key == "group" && value == "atomic")
          config.group = Config::Profile::Atomic;
        else if (key == "samecomm" && (value == "serial" || value == "free"))
          config.sameDomainSerial = value == "serial";
        else if (key == "L" && value == "inf")
          config.launchDepth = Config::kUnlimited;
        else if (key == "L") {
          uint32_t depth = 0;
          auto [end, ec] =
              std::from_chars(value.data(), value.data() + value.size(), depth);
          if (ec != std::errc() || end != value.data() + value.size() ||
              !depth || depth > 1000000)
            in.fail("L is inf or a number from 1 to 1000000");
          config.launchDepth = depth;
        } else
          in.fail("unknown setting " + key + "=" + value);
      }
      in.skipBlanks();
      in.accept(",");
    }
  }

  void parseExpect() {
    std::string text(in.restOfLine());
    if (threads.empty())
      in.fail("expect without a program before it");
    Expectation e;
    if (text.rfind("nocheck", 0) == 0) {
      e.noCheck = true;
      e.text = text.substr(std::min<size_t>(text.size(), 8));
    } else if (text == "clean")
      e.verdict = Verdict::Clean;
    else if (text == "race")
      e.verdict = Verdict::Race;
    else if (text == "mismatch")
      e.verdict = Verdict::Mismatch;
    else if (text == "deadlock(always)")
      e.verdict = Verdict::DeadlockAlways;
    else if (text == "deadlock(some)")
      e.verdict = Verdict::DeadlockSome;
    else
      in.fail("expected clean, race, mismatch, deadlock(always), "
              "deadlock(some) or nocheck TEXT");
    expectation = std::move(e);
    finishVariant();
  }

  struct Expectation {
    std::optional<Verdict> verdict;
    bool noCheck = false;
    std::string text;
  };
  std::optional<Expectation> expectation;

  void parseThread(bool isProc) {
    RawThread thread;
    thread.isProc = isProc;
    thread.line = in.line;
    if (isProc)
      thread.owner = in.word("a process name");
    else
      thread.rank = Rank(in.number("a rank", INT32_MAX));
    in.skipBlanks();
    if (in.peek() != ':')
      thread.name = in.word("a thread name or ':'");
    in.expect(':');
    std::string key =
        (isProc ? "proc " + thread.owner : std::to_string(thread.rank)) + ' ' +
        thread.name;
    auto [given, fresh] = threadLines.try_emplace(key, in.line);
    if (!fresh)
      in.fail("this thread was already given in line " +
              std::to_string(given->second));
    for (;;) {
      in.skipSpace();
      if (in.atEnd() || atBlockStart())
        break;
      if (in.accept(";"))
        continue;
      parseStatement(thread);
      in.skipSpace();
      if (in.atEnd() || atBlockStart())
        break;
      if (!in.accept(";"))
        in.fail("expected ';' between statements");
    }
    threads.push_back(std::move(thread));
  }

  bool atBlockStart() {
    Scanner saved = in;
    if (saved.accept("---"))
      return true;
    return isKeyword(in.peekWord());
  }

  uint32_t useDomain(const std::string &name) {
    auto it = domainIds.find(name);
    if (it == domainIds.end())
      in.fail("unknown domain '" + name + "'");
    usedDomains.insert(it->second);
    return it->second;
  }

  void parseStatement(RawThread &thread) {
    if (++opCount > kMaxCaseOps)
      in.fail("more than 200000 statements in one variant");
    RawStatement raw;
    if (in.accept("@")) {
      raw.at = int64_t(in.number("a rank after '@'", INT32_MAX));
      if (!thread.isProc && raw.at != thread.rank)
        in.fail("rank " + std::to_string(thread.rank) +
                " cannot drive device " + std::to_string(raw.at) +
                "; use proc");
      in.skipSpace();
    }
    Statement &stmt = raw.stmt;
    stmt.loc = here();
    if (in.accept("[")) {
      in.skipBlanks();
      std::string stream = in.word("a stream name");
      in.expect(']');
      in.skipSpace();
      stmt.kind = StmtKind::Issue;
      raw.op.stream = streams(stream);
      raw.op.loc = here();
      parseOperation(raw.op);
    } else if (in.accept("mm!"))
      stmt.kind = StmtKind::MapMemory;
    else if (in.accept("free!"))
      stmt.kind = StmtKind::Free;
    else if (in.accept("load!"))
      stmt.kind = StmtKind::LoadKernel;
    else if (in.accept("H:")) {
      stmt.kind = StmtKind::HostCollective;
      stmt.label = in.word("the name of a host collective");
      in.expect('(');
      in.skipSpace();
      stmt.domain = useDomain(in.word("a domain name"));
      Operation ignored;
      Part part;
      parseAttributes(part, ignored);
      stmt.compared = std::move(part.compared);
      stmt.hasRoot = part.hasRoot;
      stmt.root = part.root;
    } else {
      std::string name = in.word("a statement");
      if (name == "sync") {
        stmt.kind = StmtKind::SyncDevice;
        in.skipBlanks();
        if (in.accept("[")) {
          in.skipBlanks();
          stmt.kind = StmtKind::SyncStream;
          stmt.stream = streams(in.word("a stream name"));
          in.expect(']');
        }
      } else if (name == "lock" || name == "unlock" || name == "set" ||
                 name == "await") {
        in.expect('(');
        in.skipSpace();
        std::string arg = in.word("a name");
        in.expect(')');
        stmt.kind = name == "lock"     ? StmtKind::Lock
                    : name == "unlock" ? StmtKind::Unlock
                    : name == "set"    ? StmtKind::SetFlag
                                       : StmtKind::AwaitFlag;
        stmt.name = name.size() > 4 && name != "await" ? locks(arg)
                    : name == "lock"                   ? locks(arg)
                                                       : flags(arg);
      } else if (name == "nop" || name == "host")
        stmt.kind = StmtKind::Nop;
      else if (name == "stall")
        stmt.kind = StmtKind::Stall;
      else
        in.fail("unknown host statement '" + name +
                "' (an asynchronous operation needs a [stream])");
    }
    thread.body.push_back(std::move(raw));
  }

  void parseOperation(Operation &op) {
    std::string name = in.word("an operation");
    in.skipSpace();
    if (name == "GRP") {
      op.kind = OpKind::Group;
      in.expect('{');
      for (;;) {
        in.skipSpace();
        if (in.accept("}"))
          break;
        if (in.accept(";"))
          continue;
        Location loc = here();
        std::string member = in.word("SND or RCV");
        if (member != "SND" && member != "RCV")
          in.fail("a group holds transfers (SND, RCV) only, not " + member);
        if (++opCount > kMaxCaseOps)
          in.fail("more than 200000 statements in one variant");
        Operation attributes;
        parsePart(member == "SND" ? OpKind::Send : OpKind::Recv, op, attributes,
                  loc);
        if (op.parts.size() == 1)
          op.need = attributes.need;
        in.skipSpace();
        if (in.peek() != ';' && in.peek() != '}')
          in.fail("expected ';' or '}' in a group");
      }
      if (op.parts.empty())
        in.fail("an empty group");
      return;
    }
    static const std::unordered_map<std::string_view, OpKind> kinds = {
        {"AR", OpKind::AllReduce},     {"AG", OpKind::AllGather},
        {"RS", OpKind::ReduceScatter}, {"A2A", OpKind::AllToAll},
        {"BC", OpKind::Broadcast},     {"RD", OpKind::Reduce},
        {"GA", OpKind::Gather},        {"SC", OpKind::Scatter},
        {"BAR", OpKind::Barrier},      {"SND", OpKind::Send},
        {"RCV", OpKind::Recv},         {"K", OpKind::Kernel},
        {"REC", OpKind::Record},       {"WAIT", OpKind::Wait},
        {"SPIN", OpKind::Spin},        {"SETF", OpKind::SetFlag}};
    auto it = kinds.find(name);
    if (it == kinds.end())
      in.fail("unknown operation '" + name + "'");
    op.kind = it->second;
    if (isCommunication(op.kind)) {
      Operation attributes;
      parsePart(op.kind, op, attributes, op.loc);
      op.need = attributes.need;
      return;
    }
    in.expect('(');
    in.skipSpace();
    std::string arg = in.word("a name");
    if (op.kind == OpKind::Kernel) {
      op.label = arg;
      Part ignored;
      parseAttributes(ignored, op);
      return;
    }
    op.name = op.kind == OpKind::Record || op.kind == OpKind::Wait ? events(arg)
                                                                   : flags(arg);
    in.expect(')');
  }

  void parsePart(OpKind kind, Operation &op, Operation &attributes,
                 const Location &loc) {
    Part part;
    part.kind = kind;
    part.loc = loc;
    in.expect('(');
    in.skipSpace();
    part.domain = useDomain(in.word("a domain name"));
    if (isTransfer(kind)) {
      in.expect(',');
      in.skipSpace();
      part.peer = Rank(in.number("the peer's rank", INT32_MAX));
    }
    parseAttributes(part, attributes);
    auto append = [](auto &to, auto &from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(op.reads, attributes.reads);
    append(op.writes, attributes.writes);
    op.parts.push_back(std::move(part));
  }

  /// `, key=value …)` after the first argument.
  void parseAttributes(Part &part, Operation &op) {
    for (;;) {
      in.skipSpace();
      if (in.accept(")"))
        break;
      if (!in.accept(","))
        in.fail("expected ',' or ')'");
      in.skipSpace();
      std::string key = in.word("an attribute");
      in.skipBlanks();
      if (!in.accept("="))
        in.fail("expected '=' after attribute '" + key + "'");
      std::string value = in.value();
      if (value.empty())
        in.fail("attribute '" + key + "' has no value");
      auto numeric = [&](uint64_t max) {
        uint64_t n = 0;
        auto [end, ec] =
            std::from_chars(value.data(), value.data() + value.size(), n);
        if (ec != std::errc() || end != value.data() + value.size() || n > max)
          in.fail("attribute '" + key + "' needs a number from 0 to " +
                  std::to_string(max));
        return n;
      };
      if (key == "need") {
        op.need = uint32_t(numeric(1000000));
        if (!op.need)
          in.fail("need is at least 1");
        continue;
      }
      if (key == "r" || key == "w" || key == "free") {
        // A freed block is written by its next owner, so freeing is a write.
        auto &list = key == "r" ? op.reads : op.writes;
        for (std::string &name : splitPlus(value))
          list.push_back(std::move(name));
        continue;
      }
      if (key == "n")
        part.count = numeric(UINT64_MAX);
      if (key == "groot") {
        part.hasRoot = true;
        part.root = Rank(numeric(INT32_MAX));
      }
      for (const auto &entry : part.compared)
        if (entry.first == key)
          in.fail("attribute '" + key + "' given twice");
      part.compared.emplace_back(std::move(key), std::move(value));
      if (part.compared.size() > 64)
        in.fail("more than 64 attributes");
    }
    std::sort(part.compared.begin(), part.compared.end());
  }

  [[noreturn]] void failAt(const Location &loc, std::string message) {
    throw Fault{{loc.line, loc.column, std::move(message)}};
  }

  void finishVariant() {
    if (threads.empty()) {
      // A label without a program: keep it for the program that follows.
      return;
    }
    if (file.variants.size() >= kMaxVariants)
      in.fail("more than 10000 variants");
    Variant variant;
    variant.label = std::move(label);
    label.clear();
    variant.line = threads.front().line;
    Program &p = variant.program;
    p.config = config;
    p.domains = domains;
    buildProcesses(p);
    p.streams = streams.names;
    p.events = events.names;
    p.flags = flags.names;
    p.locks = locks.names;
    if (expectation) {
      variant.expect = expectation->verdict;
      variant.noCheck = expectation->noCheck;
      variant.noCheckText = expectation->text;
    }
    file.variants.push_back(std::move(variant));
    threads.clear();
    threadLines.clear();
    expectation.reset();
    usedDomains.clear();
    opCount = 0;
    streams = events = flags = locks = Interner();
  }

  void buildProcesses(Program &p) {
    std::unordered_map<std::string, uint32_t> processIds;
    std::unordered_map<Rank, uint32_t> deviceIds;
    auto processOf = [&](const RawThread &t) {
      std::string name =
          t.isProc ? "proc " + t.owner : "r" + std::to_string(t.rank);
      auto [it, fresh] =
          processIds.try_emplace(name, uint32_t(p.processes.size()));
      if (fresh)
        p.processes.push_back({name, {}, {}});
      return it->second;
    };
    auto deviceOf = [&](Rank rank, uint32_t process, const Location &loc) {
      auto [it, fresh] =
          deviceIds.try_emplace(rank, uint32_t(p.devices.size()));
      if (fresh) {
        p.devices.push_back({rank, process});
        p.processes[process].devices.push_back(it->second);
      } else if (p.devices[it->second].process != process)
        failAt(loc,
               "device " + std::to_string(rank) + " belongs to two processes");
      return it->second;
    };
    for (const RawThread &t : threads) {
      uint32_t process = processOf(t);
      Location loc{std::string(path), t.line, 1};
      if (!t.isProc)
        deviceOf(t.rank, process, loc);
      for (const RawStatement &raw : t.body)
        if (raw.at >= 0)
          deviceOf(Rank(raw.at), process, raw.stmt.loc);
    }
    for (RawThread &t : threads) {
      uint32_t process = processOf(t);
      const std::vector<uint32_t> &devices = p.processes[process].devices;
      p.processes[process].threads.push_back(uint32_t(p.threads.size()));
      Thread thread{process, t.name, {}};
      thread.body.reserve(t.body.size());
      for (RawStatement &raw : t.body) {
        Statement &stmt = raw.stmt;
        if (raw.at >= 0)
          stmt.device = deviceIds.at(Rank(raw.at));
        else if (devices.size() == 1)
          stmt.device = devices.front();
        switch (stmt.kind) {
        case StmtKind::SyncDevice:
          if (stmt.device == kNone)
            stmt.kind = StmtKind::SyncProcess;
          break;
        case StmtKind::Issue:
        case StmtKind::SyncStream:
        case StmtKind::MapMemory:
        case StmtKind::HostCollective:
          if (stmt.device == kNone)
            failAt(stmt.loc,
                   "say which device with @RANK: this process drives " +
                       std::to_string(devices.size()));
          break;
        default:
          break;
        }
        if (stmt.kind == StmtKind::Issue) {
          raw.op.device = stmt.device;
          stmt.op = uint32_t(p.ops.size());
          p.ops.push_back(std::move(raw.op));
        }
        thread.body.push_back(std::move(stmt));
      }
      p.threads.push_back(std::move(thread));
    }
  }
};

} // namespace

bool parseCase(std::string_view text, std::string_view path, CaseFile &file,
               CaseError &error) {
  if (text.size() > kMaxCaseBytes) {
    error = {0, 0, "file larger than 64 MiB"};
    return false;
  }
  size_t nul = text.find('\0');
  if (nul != std::string_view::npos) {
    error = {0, 0, "not a text file (NUL byte)"};
    return false;
  }
  if (text.substr(0, 1) == "#") {
    std::string_view first = text.substr(1, text.find('\n') - 1);
    while (!first.empty() && Scanner::isBlank(first.front()))
      first.remove_prefix(1);
    file.title = std::string(first.substr(0, 300));
  }
  try {
    Parser(text, path, file).run();
  } catch (Fault &fault) {
    error = std::move(fault.error);
    return false;
  }
  return true;
}

} // namespace concord::order
