/** The library under test; with a fault of faults.mjs planted, if one is named. */

/** The simulated classes of src/; histories may share them. */
export async function libraryWith(planted = null) {
  const from = (name) => import(`../../src/${name}.ts${planted ? `?planted=${planted}` : ""}`);
  const [{ Session }, { KnownRegions }, { Subscriber }] = await Promise.all([from("session"), from("regions"), from("subscriber")]);
  return { Session, KnownRegions, Subscriber };
}
