// SHA-256, and what of a text counts for a digest: tokens, not comments and white space.
#include <gtest/gtest.h>

#include "cuda/jit/sha256.h"
#include "cuda/jit/source_digest.h"

namespace fuseblock::jit {
namespace {

TEST(Sha256, TheStandardsExamples) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, EveryLengthOfTheLastChunkIsTold) {
  for (std::size_t length = 0; length < 130; ++length)
    EXPECT_NE(sha256(std::string(length, '\0')), sha256(std::string(length + 1, '\0'))) << length;
}

TEST(SourceDigest, CommentsAndWhiteSpaceDoNotCount) {
  const std::string digest = source_digest("int f(int a) { return a + 1; }");
  for (const char* text : {
           "int f(int a) {\n  return a + 1;\n}\n",
           "// head\nint f ( int a ) { return a + 1 ; }",
           "/* head\n   lines */int/**/f(int a){return a+1;}",
           "int f(int a) {  // one\r\n\treturn a + 1;  /* two */ }",
           "// a comment \\\n that goes on { }\nint f(int a) { return a + 1; }",
           "int f(int a) { ret\\\nurn a + 1; }",
       })
    EXPECT_EQ(source_digest(text), digest) << text;
}

TEST(SourceDigest, TokensCount) {
  const std::string digest = source_digest("int f(int a) { return a + 1; }");
  for (const char* text : {
           "int f(int a) { return a + 2; }",
           "int f(int b) { return b + 1; }",
           "intf(int a) { return a + 1; }",
           "int f(int a) { return a ++1; }",
           "int f(int a) { return /* a + */ 1; }",
           "",
       })
    EXPECT_NE(source_digest(text), digest) << text;
}

TEST(SourceDigest, TokensStayApart) {
  EXPECT_EQ(without_comments("unsigned   int  x"), "unsigned int x");
  EXPECT_EQ(without_comments("unsigned/**/int"), "unsigned int");
  EXPECT_EQ(without_comments("a + +b"), "a+ +b");
  EXPECT_EQ(without_comments("a - -1"), "a- -1");
  EXPECT_EQ(without_comments("x<y<z> >"), "x<y<z> >");
  EXPECT_EQ(without_comments("0xe +1"), "0xe +1");
  EXPECT_EQ(without_comments("1e+5 + 2"), "1e+5 +2");
  EXPECT_EQ(without_comments("a . 5"), "a. 5");
  EXPECT_EQ(without_comments("return  1;\n\n}"), "return 1;}");
  EXPECT_EQ(without_comments("return \"a\";"), "return \"a\";");
}

TEST(SourceDigest, LiteralsStayAsTheyAre) {
  for (const char* text : {
           R"("two  spaces // no comment /* nor this */")",
           R"("a quote \" and  // more")",
           R"('"')",
           R"('\'')",
           R"('/')",
           "R\"(raw \"  // text\n  /* in lines */ )\"",
           "R\"end(raw )\" and )end\"",
       })
    EXPECT_EQ(without_comments(text), text);
  EXPECT_NE(source_digest("f(\"a b\")"), source_digest("f(\"a  b\")"));
  EXPECT_NE(source_digest("f(' ')"), source_digest("f('  ')"));
  EXPECT_NE(source_digest("f(\"// a\")"), source_digest("f(\"// b\")"));
  EXPECT_NE(source_digest("f(\"/* a */\")"), source_digest("f(\"\")"));
}

TEST(SourceDigest, DigitSeparatorsAreNoLiterals) {
  EXPECT_EQ(without_comments("1'000 + x;  // 'tis a comment"), "1'000 +x;");
  EXPECT_EQ(source_digest("a = 1'000'000;  b = 'c';"), source_digest("a = 1'000'000; /* ' */ b = 'c';"));
}

TEST(SourceDigest, PreprocessorLinesStayLines) {
  EXPECT_EQ(without_comments("int a;\n  #define  N   3  // three\nint b;"), "int a;\n#define N 3\nint b;");
  EXPECT_EQ(without_comments("#define N /* a\n b */ 3\nint b;"), "#define N 3\nint b;");
  EXPECT_EQ(without_comments("#define N \\\n  3\nint b;"), "#define N 3\nint b;");
  EXPECT_NE(source_digest("#define f(x) 1\n"), source_digest("#define f (x) 1\n"));
  EXPECT_NE(source_digest("#define N\n1\n"), source_digest("#define N 1\n"));
  EXPECT_EQ(source_digest("#define N 1\n\n\nint a;\n"), source_digest("#define N 1\nint a;\n"));
}

TEST(SourceDigest, BrokenTextsEnd) {
  for (const char* text :
       {"/*", "/* a", "\"", "\"a", "'", "'\\", "\"\\", "R\"", "R\"x", "R\"x(", "//", "\\", "#", "1'"})
    EXPECT_FALSE(source_digest(text).empty()) << text;
}

}  // namespace
}  // namespace fuseblock::jit
