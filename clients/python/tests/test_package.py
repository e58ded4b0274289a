import ast
import os
import re
import sys
import unittest

import holdfast

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def sources(folder):
    for name in sorted(os.listdir(os.path.join(ROOT, folder))):
        if name.endswith(".py"):
            with open(os.path.join(ROOT, folder, name), encoding="utf-8") as file:
                yield name, file.read()


class TestPackage(unittest.TestCase):
    def test_has_no_syntax_newer_than_python_3_9(self):
        found = 0
        for folder in ("holdfast", "tests"):
            for name, text in sources(folder):
                ast.parse(text, name, feature_version=(3, 9))
                found += 1
        self.assertGreater(found, 10)
        with self.assertRaises(SyntaxError):  # what newer syntax there is does not pass
            ast.parse("match x:\n    case 1: pass", feature_version=(3, 9))

    @unittest.skipUnless(hasattr(sys, "stdlib_module_names"), "Python before 3.10 does not list its own modules")
    def test_imports_the_standard_library_alone(self):
        for name, text in sources("holdfast"):
            for node in ast.walk(ast.parse(text)):
                modules = []
                if isinstance(node, ast.Import):
                    modules = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.level == 0:
                    modules = [node.module]
                for module in modules:
                    self.assertIn(module.partition(".")[0], sys.stdlib_module_names, name)

    def test_every_public_name_is_documented(self):
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            readme = file.read()
        for name in holdfast.__all__:
            value = getattr(holdfast, name)
            self.assertRegex(readme, r"\b%s\b" % name)
            if not isinstance(value, int):
                self.assertTrue(value.__doc__, name)

    def test_project_file_says_the_same_python_and_no_dependency(self):
        with open(os.path.join(ROOT, "pyproject.toml"), encoding="utf-8") as file:
            project = file.read()
        self.assertTrue(re.search(r'^requires-python = ">=3\.9"$', project, re.M))
        self.assertTrue(re.search(r"^dependencies = \[\]$", project, re.M))


if __name__ == "__main__":
    unittest.main()
