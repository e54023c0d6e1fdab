// Run a storyboard by AdCP's own runner, and print it and what the runner says of it as JSON.
const { url, file, token, packages } = JSON.parse(process.argv[2]);
const { loadStoryboardFile, runStoryboard } = require(`${packages}/@adcp/sdk/dist/lib/testing`);

// The runner sends a start that is not a date, such as "asap", as tomorrow at this millisecond: no retry would be equal.
const START = '2099-07-01T00:00:00Z';

async function main() {
  const storyboard = loadStoryboardFile(file);
  const steps = storyboard.phases.flatMap(phase => phase.steps);
  for (const step of steps) if (step.sample_request?.start_time === 'asap') step.sample_request.start_time = START;
  const result = await runStoryboard(url, storyboard, {
    protocol: 'mcp',
    allow_http: true,
    skip_controller_seeding: true,
    auth: { type: 'bearer', token },
  });
  process.stdout.write(JSON.stringify({ storyboard, result }), () => process.exit());
}

main();
