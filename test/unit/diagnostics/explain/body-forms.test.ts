import { expect, test } from 'vitest';
import { DEFAULT_BUDGET, Meter } from '../../../../src/diagnostics/explain/analysis.ts';
import { toBodyForms } from '../../../../src/diagnostics/explain/body-forms.ts';

const SIZE = 256 * 1024;

// A pattern that looks again from every character of a run takes minutes for each of these, and the test ends before that.
test.each([
  ['line ends', '\n'],
  ['CRLFs', '\r\n'],
  ['CRs', '\r'],
  ['spaces', ' '],
  ['tabs', '\t'],
  ['blanks of all kinds', ' \t\r\n'],
  ['quotes', '"'],
  ['backslashes', '\\'],
  ['escapes', '\\n'],
  ['percent signs', '%'],
  ['equals signs', '='],
  ['ampersands', '&'],
  ['letters', 'A'],
  ['brackets', '['],
])('the forms of 256 KiB of %s before a letter are generated within the budget', (_title, run) => {
  const text = run.repeat(SIZE / run.length);
  for (const body of [`${text}x`, `x${text}x`, `"${text}x"`, `{"a":"b"${text}x`, `payload=${text}x`]) {
    const meter = new Meter(DEFAULT_BUDGET);
    const forms = [...toBodyForms(Buffer.from(body), meter)].filter((form) => form !== undefined);
    expect(forms.length).toBeGreaterThan(0);
    expect(forms.length).toBeLessThan(100);
    expect(meter.bytes).toBeLessThanOrEqual(DEFAULT_BUDGET.bytes);
  }
});
