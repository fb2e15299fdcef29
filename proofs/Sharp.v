(** The constant 8 of the bound is sharp.

    book/proofs.md; attnconv.theory.theorem1.softness_bound and sufficient_alpha.  On a checkerboard the
    four neighbours of each pixel have the other sign, and together nearly all of the attention that
    the centre misses; a kernel whose signs alternate with its shifts adds up what heads miss. *)

From mathcomp Require Import all_ssreflect all_algebra boolp reals sequences exp.
From AttnConv Require Import Attention Lemma1 Lemma2 Theorem1.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(** The sign of a square of the checkerboard, and the four neighbours of a pixel. *)
Definition checker (R : realType) (p : pixel) : R := (-1) ^ p.1 * (-1) ^ p.2.
Definition neighbours (p : pixel) : seq pixel :=
  [seq p + d | d : shift <- [:: (1, 0); (-1, 0); (0, 1); (0, -1)]].
Definition checkerboard (R : realType) D (B : R) : image R D :=
  fun k => const_mx (B * checker R k).

Section Checker.
Variable R : realType.

Lemma checkerD p p' : checker R (p + p') = checker R p * checker R p'.
Proof. by rewrite /checker !expfzDr ?oppr_eq0 ?oner_eq0 // mulrACA. Qed.

Lemma checker_sqr p : checker R p * checker R p = 1.
Proof. by rewrite /checker mulrACA -!expfzMl mulN1r opprK !exp1rz mulr1. Qed.

Lemma checker_norm p : `|checker R p| = 1.
Proof.
have : checker R p ^+ 2 == 1 by rewrite expr2 checker_sqr.
by rewrite sqrf_eq1 => /orP[]/eqP->; rewrite ?normrN normr1.
Qed.

Lemma checker_le1 p : checker R p <= 1.
Proof. by rewrite -(checker_norm p) ler_norm. Qed.

Lemma checker_neighbour c k : k \in neighbours c -> checker R (k - c) = -1 /\ sqnorm (k - c) = 1%N.
Proof.
move=> /mapP[d dN ->]; rewrite [c + d]addrC addrK.
by move: dN; rewrite !inE => /or4P[]/eqP->; split; rewrite // /checker /= ?expr0z ?expr1z ?mulr1
  ?mul1r // exprN1 invrN1.
Qed.

Lemma neighbours_uniq c : uniq (neighbours c).
Proof. by rewrite map_inj_uniq //; apply: addrI. Qed.
End Checker.

Section Sharp.
Variables (R : realType) (N Din Dh Dout Dk Dp m : nat).
Variables (Delta : seq shift) (f : 'I_N -> shift) (g : 'I_m -> 'I_Dout).
Variables (W : shift -> 'M[R]_(Din, m)) (b : 'rV[R]_m).
Hypotheses (mDh : (m <= Dh)%N) (g_inj : injective g) (f_Delta : perm_eq (codom f) Delta).
Hypotheses (Dp3 : (3 <= Dp)%N) (DpDk : (Dp <= Dk)%N).

(** What a head misses on a checkerboard of ones, if the neighbours of its pixel are there. *)
Definition sharp_share (alpha : R) : R :=
  8%:R * expR (- alpha) * ((1 - expR (- alpha)) / (1 + expR (- alpha))) ^+ 2.

Lemma checker_miss o H Wd c (alpha : R) : let S := rectangle o H Wd in
  0 <= alpha -> c \in S -> {subset neighbours c <= S} ->
  sharp_share alpha <= \sum_(k <- S) gauss o H Wd c alpha k * (1 - checker R (k - c)).
Proof.
move=> S alpha0 cS nS; have /andP[x0 x1] := expRN_itv alpha0; set x := expR (- alpha) in x0 x1 *.
have t_gt0 : 0 < \sum_(k' <- S) x ^+ sqnorm (k' - c).
  rewrite (big_rem c) //= subrr expr0 ltr_paddr ?ltr01 // sumr_ge0 // => *; exact: exprn_ge0.
have G0 k : 0 <= gauss o H Wd c alpha k * (1 - checker R (k - c)).
  by rewrite mulr_ge0 ?subr_ge0 ?checker_le1 // eq_18 divr_ge0 ?exprn_ge0 // ltW.
apply: le_trans (sum_subset (neighbours_uniq c) (uniq_rectangle _ _ _) nS G0).
rewrite (eq_big_seq (fun _ => x / (\sum_(k' <- S) x ^+ sqnorm (k' - c)) * 2%:R)) => [|k kN].
  rewrite big_const_seq count_predT size_map iter_addr_0 /= -mulr_natr -mulrA -natrM.
  have := total_le cS (introT andP (conj x0 x1)); rewrite -/S.
  move: (\sum_(k' <- S) _) t_gt0 => t t0 t_le.
  have -> : x / t * (2 * 4)%:R = 8%:R * x / t by rewrite mulrC mulrA.
  rewrite /sharp_share -/x ler_wpmul2l ?mulr_ge0 ?ler0n //.
  have x10 : 0 < 1 + x by rewrite ltr_paddr ?ltr01.
  by rewrite expr_div_n ler_pdivr_mulr ?exprn_gt0 // mulrC ler_pdivl_mulr.
have [sign one] := checker_neighbour R kN.
by rewrite eq_18 sign one expr1 opprK.
Qed.

(** ** The bound is sharp

    Let the kernel's signs alternate with its shifts,
    [W_delta,i,o = (-1)^(delta_1 + delta_2) |W_delta,i,o|], and the image be a checkerboard of the
    numbers [B] and [-B], large enough for the query's pixels and their neighbours. Then layer and
    convolution differ by at least
    [8 e^-alpha ((1 - e^-alpha) / (1 + e^-alpha))^2 B sum_delta sum_i |W_delta,i,o|], and by
    [theorem_1_gap] by at most the same without the square: the ratio of the two tends to 1. *)
Theorem bound_is_sharp (alpha B : R) (o : 'I_m) p H Wd q :
  let S := rectangle p H Wd in let X := checkerboard Din B in
  0 <= alpha -> 0 <= B -> interior S Delta q ->
  (forall delta, delta \in Delta -> {subset neighbours (q + delta) <= S}) ->
  (forall delta i, delta \in Delta -> W delta i o = checker R delta * `|W delta i o|) ->
  sharp_share alpha * B * kernel_norm Delta W o <=
  `|apply_layer (conv_layer Dh Dk Dp f g W b alpha) S X q 0 (g o) - conv Delta W b X q 0 o|.
Proof.
move=> S X alpha0 B0 qS nS alternating.
have fD h : f h \in Delta by rewrite -(perm_mem f_Delta) codom_f.
have fS h : q + f h \in S by apply/qS/fD.
pose a h k := gauss p H Wd (q + f h) alpha k.
pose mu h := \sum_(k <- S) a h k * (1 - checker R (k - (q + f h))).
have layer_out : apply_layer (conv_layer Dh Dk Dp f g W b alpha) S X q 0 (g o) =
    \sum_h \sum_i (\sum_(k <- S) a h k * X k 0 i) * W (f h) i o + b 0 o.
  rewrite /apply_layer eq_12 [LHS]mxE mulmx_select // summxE; congr (_ + _).
  apply: eq_bigr => h _; rewrite [value_matrix _ _ _]value_matrix_wide // mulmxA mulmx_select //.
  rewrite mxE; apply: eq_bigr => i _; rewrite summxE; congr (_ * _); apply: eq_bigr => k _.
  by rewrite mxE /probabilities [softmax _ _ _]softmax_quadratic.
have conv_out : conv Delta W b X q 0 o =
    \sum_h \sum_i X (q + f h) 0 i * W (f h) i o + b 0 o.
  rewrite /conv (sum_heads _ f_Delta) mxE summxE; congr (_ + _); apply: eq_bigr => h _.
  by rewrite mxE.
have miss_out h i : (\sum_(k <- S) a h k * X k 0 i) * W (f h) i o - X (q + f h) 0 i * W (f h) i o
    = - checker R q * (mu h * (B * `|W (f h) i o|)).
  have -> : (\sum_(k <- S) a h k * X k 0 i) = B * checker R (q + f h) * (1 - mu h).
    have a1 : \sum_(k <- S) a h k = 1 := softmax_sum _ (fS h).
    rewrite /mu -[X in X - _]a1 -sumrB mulr_sumr; apply: eq_bigr => k _.
    have -> (s : R) : a h k - a h k * (1 - s) = a h k * s.
      by rewrite mulrBr mulr1 opprB addrCA subrr addr0.
    have ck : checker R k = checker R (q + f h) * checker R (k - (q + f h)).
      by rewrite -checkerD addrC subrK.
    by rewrite /X mxE ck [RHS]mulrCA !mulrA.
  have := alternating _ i (fD h); set w0 := `|W (f h) i o| => ->.
  rewrite /X mxE -mulrBl mulrBr mulr1 addrAC subrr add0r checkerD.
  rewrite !mulNr; congr (- _); have := checker_sqr R (f h).
  move: (checker R (f h)) (checker R q) (mu h) w0 => s u0 m0 w ss.
  rewrite -[LHS]mulrA [m0 * _]mulrCA [B * _]mulrA -[LHS]mulrA [s * (s * _)]mulrA ss mul1r.
  by rewrite [B * u0]mulrC -[LHS]mulrA [B * (m0 * w)]mulrCA.
rewrite layer_out conv_out opprD addrACA subrr addr0 -sumrB.
under [X in `|X|]eq_bigr do rewrite -sumrB.
under [X in `|X|]eq_bigr do under eq_bigr do rewrite miss_out.
under [X in `|X|]eq_bigr do rewrite -mulr_sumr.
rewrite -mulr_sumr normrM normrN checker_norm mul1r; apply: le_trans (ler_norm _).
rewrite /kernel_norm (sum_heads _ f_Delta) mulr_sumr ler_sum // => h _.
rewrite mulr_sumr ler_sum // => i _; rewrite -mulrA ler_wpmul2r ?mulr_ge0 //.
by apply: checker_miss; [| exact: fS | exact/nS/fD].
Qed.
End Sharp.

(** Refuted: that a constant [c] below 8 suffices in [theorem_1_alpha], already for one head, the
    [1 x 1] kernel 1 and images of [3 x 3] pixels with numbers of size at most 1. *)
Theorem alpha_constant_refuted (R : realType) (c : R) : 0 < c < 8%:R ->
  ~ (forall eps alpha : R, 0 < eps -> ln (1 + c / eps) <= alpha ->
     forall X : image R 1, (forall k i, k \in grid 3 3 -> `|X k 0 i| <= 1) ->
     let L := conv_layer 1 3 3 (fun _ : 'I_1 => 0) (id : 'I_1 -> 'I_1) (fun _ => 1%:M) 0 alpha in
     `|apply_layer L (grid 3 3) X (1, 1) 0 0
       - conv [:: 0] (fun _ => 1%:M) 0 X (1, 1) 0 0| < eps).
Proof.
move=> /andP[c0 c8] suffices; pose d := 1 - c / 8%:R; pose x := d / 6%:R.
have d01 : 0 < d <= 1.
  rewrite subr_gt0 ltr_pdivr_mulr ?ltr0n // mul1r c8 ler_subl_addl ler_addr.
  by rewrite divr_ge0 ?ler0n // ltW.
have [d0 d1] := andP d01.
have x0 : 0 < x by rewrite divr_gt0 ?ltr0n.
have x1 : x < 1.
  by rewrite ltr_pdivr_mulr ?ltr0n // mul1r (le_lt_trans d1) // ltr1n.
pose alpha := - ln x.
have alpha_x : expR (- alpha) = x by rewrite /alpha opprK lnK ?posrE.
have alpha0 : 0 <= alpha.
  by rewrite /alpha oppr_ge0 -(@ln1 R) ler_ln ?posrE ?ltr01 // ltW.
pose rho := ((1 - x) / (1 + x)) ^+ 2; pose eps := 8%:R * x * rho.
have x10 : 0 < 1 + x by rewrite ltr_paddr ?ltr01 // ltW.
have x11 : 0 < 1 - x by rewrite subr_gt0.
have rho0 : 0 < rho by rewrite exprn_gt0 // divr_gt0.
have eps0 : 0 < eps by apply: mulr_gt0 rho0; rewrite mulr_gt0 ?ltr0n.
have f_Delta : perm_eq (codom (fun _ : 'I_1 => 0 : shift)) [:: 0].
  have -> : (fun _ : 'I_1 => 0 : shift) = (fun h : 'I_1 => [:: 0]`_h).
    by apply/funext => h; rewrite ord1.
  by rewrite codom_nth.
have large : ln (1 + c / eps) <= alpha.
  have ce : 0 <= c / eps by rewrite divr_ge0 ?ltW.
  have ce1 : 0 < 1 + c / eps by rewrite ltr_paddr ?ltr01.
  rewrite /alpha -lnV ?posrE // ler_ln ?posrE ?invr_gt0 //.
  rewrite -[leRHS]div1r ler_pdivl_mulr // mulrDl mul1r addrC -ler_subr_addr.
  have -> : c / eps * x = (1 - d) / rho.
    have cancel (y a z e : R) : e != 0 -> y / (a * e * z) * e = y / a / z.
      move=> e0; rewrite !invfM -!mulrA; congr (_ * (_ * _)).
      by rewrite mulrCA mulVf ?mulr1.
    by rewrite /d opprB addrCA subrr addr0 /eps cancel ?gt_eqF.
  rewrite ler_pdivr_mulr // /rho expr_div_n mulrA ler_pdivl_mulr ?exprn_gt0 //.
  have three : 3%:R * x + 3%:R * x = d.
    by rewrite -mulrDl -natrD /x mulrCA divff ?mulr1 // pnatr_eq0.
  have xx : x ^+ 2 <= x by rewrite expr2 ger_pmulr // ltW.
  apply: (@le_trans _ _ (1 - 3%:R * x)); last first.
    have bernoulli y : 0 <= y -> 1 - (x + y) <= (1 - x) * (1 - y).
      move=> y0; rewrite mulrBl mul1r mulrBr mulr1 opprB [x * y - x]addrC addrA.
      have -> : 1 - (x + y) = 1 - y - x by rewrite opprD addrA addrAC.
      by rewrite ler_addl mulr_ge0 // ltW.
    have -> : 3%:R * x = x + (x + x) by rewrite mulr_natl mulrS mulr2n.
    apply: le_trans (bernoulli _ (addr_ge0 (ltW x0) (ltW x0))) _.
    by rewrite ler_wpmul2l ?(ltW x11) // bernoulli ?ltW.
  apply: (@le_trans _ _ ((1 - d) * (1 + 3%:R * x))).
    rewrite ler_wpmul2l ?subr_ge0 // sqrrD expr1n mul1r -addrA ler_add2l.
    by rewrite [3%:R]mulrS mulrDl mul1r addrC mulr_natl ler_add2r.
  have : 0 <= 3%:R * x by rewrite mulr_ge0 ?ler0n // ltW.
  rewrite -three; move: (3%:R * x) => z z0; rewrite mulrBl mul1r mulrDr mulr1 opprD addrA.
  have -> : 1 + z - (z + z) = 1 - z by rewrite opprD addrA addrK.
  by rewrite ger_addl oppr_le0 mulr_ge0 ?addr_ge0.
have := suffices eps alpha eps0 large (checkerboard 1 1).
have bounded k i : k \in grid 3 3 -> `|checkerboard 1 (1 : R) k 0 i| <= 1.
  by rewrite mxE mul1r checker_norm.
move=> /(_ bounded); apply/negP; rewrite -leNgt.
have sub s t : all (fun k => k \in t) s -> {subset s <= t} by move/allP.
have := @bound_is_sharp R 1 1 1 1 3 3 1 [:: 0] (fun _ => 0) id (fun _ => 1%:M) 0 (leqnn _)
  (@inj_id _) f_Delta (leqnn _) (leqnn _) alpha 1 0 0 3 3 (1, 1) alpha0 ler01.
rewrite /kernel_norm big_seq1 big_ord1 mxE eqxx normr1 !mulr1 /sharp_share alpha_x; apply.
- by move=> d0'; rewrite inE => /eqP->.
- by move=> d0'; rewrite inE => /eqP->; apply: sub; vm_compute.
- by move=> d0' i; rewrite inE => /eqP->; rewrite mxE !ord1 eqxx normr1 /checker !expr0z !mulr1.
Qed.
