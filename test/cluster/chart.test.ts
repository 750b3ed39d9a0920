import { describe, expect, test } from 'vitest';
import { CHART, helm, pick, renderChart, templateChart } from '../support/chart.ts';

describe('the chart', () => {
  test("passes Helm's own lint, warnings included", async () => {
    const { code, stdout } = await helm('lint', '--strict', CHART);
    expect(stdout).toContain('0 chart(s) failed');
    expect(code).toBe(0);
  });

  test('renders the same bytes twice', async () => {
    const [first, second] = [await templateChart({}), await templateChart({})];
    expect(first.stderr).toBe('');
    expect(second.stdout).toBe(first.stdout);
  });

  test('gives the injector an account whose token goes into no pod that does not ask for it', async () => {
    expect(pick(await renderChart(), 'ServiceAccount')['automountServiceAccountToken']).toBe(false);
  });
});
